// Channels, and how states are packed and shown.
#include "state.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>

std::string violation;

void send(State& state, int from, int to, Message message) {
    if (!state.alive(to) || (state.cut[from] & bit(to)) || (from != K && (state.fenced(from) & bit(to)))) return;
    Channel& channel = state.channels[from][to];
    if (channel.count == CAPACITY) {
        std::fprintf(stderr, "a channel is full: raise CAPACITY\n");
        std::exit(3);
    }
    channel.messages[channel.count++] = message;
}

void pack(const State& state, std::string& bytes) {
    bytes.assign(reinterpret_cast<const char*>(&state), offsetof(State, channels));
    for (int from = 0; from < NODES; from++)
        for (int to = 0; to < NODES; to++) {
            const Channel& channel = state.channels[from][to];
            if (!channel.count) continue;
            bytes.push_back(static_cast<char>(from * NODES + to));
            bytes.append(reinterpret_cast<const char*>(&channel), 1 + channel.count * sizeof(Message));
        }
}

void unpack(const std::string& bytes, State& state) {
    std::memset(&state, 0, sizeof state);
    const char *at = bytes.data(), *end = at + bytes.size();
    std::memcpy(&state, at, offsetof(State, channels));
    at += offsetof(State, channels);
    while (at < end) {
        int pair = static_cast<u8>(*at++);
        size_t size = 1 + static_cast<u8>(*at) * sizeof(Message);
        std::memcpy(&state.channels[pair / NODES][pair % NODES], at, size);
        at += size;
    }
}

std::string told(const Message& message) {
    char text[120];
    if (message.kind >= PREPARE)
        std::snprintf(text, sizeof text, "%s of configuration %d", KIND_NAME[message.kind], message.configuration);
    else if (message.kind == REFUSED)
        std::snprintf(text, sizeof text, "REFUSED, configuration %d is in force", message.configuration);
    else
        std::snprintf(text, sizeof text, "%s b%d version %d (configuration %d)", KIND_NAME[message.kind], message.block,
                      message.version, message.configuration);
    return text;
}

std::string told(const State& state) {
    std::string all;
    char text[200];
    for (int w = W1; w <= W2; w++) {
        const Worker& worker = state.worker(w);
        std::snprintf(text, sizeof text, "  %s alive %d configuration %d prepared %d version %d slab %d fenced %d\n", NODE_NAME[w],
                      worker.alive, worker.configuration, worker.prepared, worker.version, worker.slab, worker.fenced);
        all += text;
    }
    for (int s = S1; s <= S3; s++) {
        const Server& server = state.server(s);
        std::snprintf(text, sizeof text, "  %s alive %d configuration %d prepared %d fenced %d", NODE_NAME[s], server.alive,
                      server.configuration, server.prepared, server.fenced);
        all += text;
        for (int b = 0; b < BLOCKS; b++) {
            const Block& block = server.blocks[b];
            std::snprintf(text, sizeof text, " b%d[%s v%d history %o streams %d acked %d]", b, ROLE_NAME[block.role],
                          block.version, block.history, block.streams, block.acked);
            all += text;
        }
        all += "\n";
    }
    const Coordinator& k = state.k;
    std::snprintf(text, sizeof text, "  K current %d plan %d phase %d death %d decided %d dead %d prepared %d switched %d restored %d\n",
                  k.current, k.plan, k.phase, k.death, k.decided, k.dead, k.prepared, k.switched, k.restored);
    return all + text;
}
