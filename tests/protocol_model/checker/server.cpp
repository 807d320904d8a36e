// What a server does with each message.
#include "nodes.h"

bool server_holds(const State& state, int me, const Message& message) {
    const Server& server = state.server(me);
    u8 known = server.prepared > server.cancelled ? server.prepared : server.cancelled;
    bool unknown = message.configuration > server.configuration && message.configuration > known;
    return rules.hold_unknown && unknown && (message.kind == SNAPSHOT || message.kind == SNAPSHOT_BEGINS);
}

static void takes_push(State& state, int from, int me, const Message& push) {
    Server& server = state.server(me);
    if (push.configuration < server.configuration) {
        send(state, me, from, {REFUSED, server.configuration, 0, 0, 0, 0});
        return;
    }
    if (push.configuration > server.configuration && push.configuration == server.prepared && by_peers(state, push.configuration))
        server_adopts(state, me, push.configuration);
    Block& block = server.blocks[push.block];
    bool repeated = block.role == OWNER && push.version < block.version;
    if (repeated && !rules.acked_answers) {
        publish(state, me, from, push.block, server.configuration);
        return;
    }
    block.pushes[from - W1] = push;
    settle(state, me);
}

static void acknowledge(State& state, int me, int owner, const Message& message) {
    send(state, me, owner, {ACK, state.server(me).configuration, message.block, message.version, 0, 0});
}

static void takes_record(State& state, int from, int me, const Message& record) {
    Server& server = state.server(me);
    Block& block = server.blocks[record.block];
    if (!rules.record_by_version && record.configuration < server.configuration) return;
    if (block.role == NONE || block.role == PARTIAL) return;
    if (block.role != COPY && rules.owner_takes_no_record) return;
    if (record.version > block.version + 1) {
        if (rules.record_by_version && rules.snapshot_on_reconnect) fail("a follower lacks a record");
        return;
    }
    if (record.version == block.version + 1) {
        block.version = record.version;
        block.history = record.history;
        for (int w = W1; w <= W2; w++)
            if (record.extra & bit(w)) publish(state, me, w, record.block, record.configuration);
    }
    acknowledge(state, me, from, record);
}

static void takes_snapshot(State& state, int from, int me, const Message& snapshot) {
    Server& server = state.server(me);
    Block& block = server.blocks[snapshot.block];
    bool coming = snapshot.configuration > server.configuration && snapshot.configuration > server.cancelled;
    bool wanted = coming || names(state.configurations[server.configuration], me, snapshot.block);
    if (rules.named_copies && !wanted) return;
    if (block.role == OWNER || block.role == LEAVING || block.role == FROZEN) return;
    if (snapshot.kind == SNAPSHOT_BEGINS) {
        block.role = PARTIAL;
        return;
    }
    if (block.role != COPY || block.version < snapshot.version) {
        block.version = snapshot.version;
        block.history = snapshot.history;
    }
    block.role = COPY;
    acknowledge(state, me, from, snapshot);
    hears_synced(state, me, snapshot.configuration, snapshot.block);
}

static void takes_ack(State& state, int from, int me, const Message& ack) {
    Block& block = state.server(me).blocks[ack.block];
    if ((block.role != OWNER && block.role != LEAVING) || ack.version != block.version || !(block.streams & bit(from))) return;
    block.acked |= bit(from);
    settle(state, me);
}

static void takes_handover(State& state, int me, const Message& message) {
    Server& server = state.server(me);
    if (!rules.record_by_version && message.configuration < server.configuration) return;
    if (message.configuration > server.configuration && message.configuration == server.prepared && by_peers(state, message.configuration))
        server_adopts(state, me, message.configuration);
    int newest = message.configuration > server.configuration ? message.configuration : server.configuration;
    const Configuration& table = state.configurations[newest];
    Block& block = server.blocks[message.block];
    if (block.role == OWNER || table.owner[message.block] != me || (table.promoted & bit(message.block))) return;
    if (block.role != COPY || block.history != message.history) return fail("a hand-over to a server that has not the copy");
    u8 follower = table.follower[message.block] ? bit(table.follower[message.block]) : 0;
    become_owner(state, me, message.block, follower, follower);
    hears_arrived(state, me, message.block);
    settle(state, me);
}

void begin_streams_again(State& state, int me, int peer) {
    Server& server = state.server(me);
    if (!rules.snapshot_on_reconnect) return;
    int configuration = server.prepared > server.configuration ? server.prepared : server.configuration;
    for (int b = 0; b < scope.blocks; b++) {
        Block& block = server.blocks[b];
        bool streams = (block.role == OWNER || block.role == LEAVING) && (block.streams & bit(peer));
        bool handed = (block.role == FROZEN || block.role == COPY) && block.handed == bit(peer);
        if (!streams && !handed) continue;
        for (Message& push : block.pushes)
            if (push.kind == RELAYED && rules.answers_itself) push.kind = PUSH;
        Message message{SNAPSHOT, static_cast<u8>(configuration), static_cast<u8>(b), block.version, block.history, 0};
        if (!rules.whole_snapshot) {
            Message begins = message;
            begins.kind = SNAPSHOT_BEGINS;
            send(state, me, peer, begins);
        }
        send(state, me, peer, message);
        message.kind = HANDOVER;
        message.configuration = server.configuration;
        if (handed) send(state, me, peer, message);
    }
}

void deliver_to_server(State& state, int from, int me, const Message& message) {
    Server& server = state.server(me);
    switch (message.kind) {
        case PUSH: return takes_push(state, from, me, message);
        case RECORD: return takes_record(state, from, me, message);
        case SNAPSHOT_BEGINS:
        case SNAPSHOT: return takes_snapshot(state, from, me, message);
        case ACK: return takes_ack(state, from, me, message);
        case HANDOVER: return takes_handover(state, me, message);
        case PREPARE: return server_prepares(state, me, message.configuration);
        case ARM:
            if (server.configuration >= message.configuration) return reports_again(state, me);
            if (server.prepared != message.configuration) return;
            server.armed = 1;
            server.clock = static_cast<u8>(message.extra);
            return settle(state, me);
        case ADOPT:
            if (server.configuration >= message.configuration) return reports_again(state, me);
            return server_adopts(state, me, message.configuration);
        case COMMITTED: return server.configuration == message.configuration ? server_commits(state, me) : void();
        case CANCEL: return server_cancels(state, me, message.configuration);
        default: fail("a server gets a message that is not for it");
    }
}
