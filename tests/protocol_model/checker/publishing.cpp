// An owner's updates: pushes become an update, the update a record, and the acknowledged version is published.
#include "nodes.h"

u8 required(const State& state, int me, int b) {
    const Server& server = state.server(me);
    int follower = state.configurations[server.configuration].follower[b];
    if (!rules.release_on_adopt && !follower) follower = state.configurations[1].follower[b];
    return follower && follower != me ? bit(follower) : 0;
}

static bool acknowledged(const State& state, int me, int b) {
    u8 needed = required(state, me, b);
    return (state.server(me).blocks[b].acked & needed) == needed;
}

void publish(State& state, int me, int worker, int b, int configuration) {
    const Block& block = state.server(me).blocks[b];
    check_published(state, me, b);
    send(state, me, worker, {VALUE, static_cast<u8>(configuration), static_cast<u8>(b), block.version, block.history, 0});
}

void become_owner(State& state, int me, int b, u8 streams, u8 acked) {
    Block& block = state.server(me).blocks[b];
    check_new_owner(state, me, b);
    block.role = OWNER;
    block.streams = streams;
    block.acked = acked;
    block.handed = 0;
}

void start_stream(State& state, int me, int to, int b, int configuration) {
    Block& block = state.server(me).blocks[b];
    block.streams |= bit(to);
    block.acked &= static_cast<u8>(~bit(to));
    Message message{SNAPSHOT, static_cast<u8>(configuration), static_cast<u8>(b), block.version, block.history, 0};
    Message begins = message;
    begins.kind = SNAPSHOT_BEGINS;
    if (!rules.whole_snapshot) send(state, me, to, begins);
    send(state, me, to, message);
}

// The samples of a worker, of the six of a batch, as the roster of its slice has it.
static int slice(const State& state, int worker, int sliced_by) {
    u8 roster = state.configurations[sliced_by].workers;
    bool both = roster == (bit(W1) | bit(W2));
    return !(roster & bit(worker)) ? 0 : both ? (worker == W1 ? 007 : 070) : 077;
}

static void update(State& state, int me, int b) {
    Server& server = state.server(me);
    Block& block = server.blocks[b];
    u8 roster = state.configurations[server.configuration].workers;
    int samples = 0, other = -1;
    for (int w = W1; w <= W2; w++) {
        if (!(roster & bit(w))) continue;
        Message& push = block.pushes[w - W1];
        int share = slice(state, w, push.extra >> 12);
        if (samples & share) fail("a sample enters an update twice");
        samples |= share;
        if (push.history != block.history) fail("a gradient was computed from another copy of the block");
        if (other >= 0 && other != (push.extra & 07777)) fail("gradients of one step were computed from different parameters");
        other = push.extra & 07777;
    }
    if (samples != 077) fail("an update lacks samples of the batch");
    block.history = grown(block.history, block.version, server.configuration);
    block.version++;
    block.acked = 0;
    u8 needed = scope.chain ? required(state, me, b) : 0;
    u8 waiting = 0;
    for (int w = W1; w <= W2; w++)
        if (roster & bit(w)) {
            waiting |= bit(w);
            if (needed) block.pushes[w - W1].kind = RELAYED;
        }
    for (int to = S1; to <= S3; to++)
        if (block.streams & bit(to))
            send(state, me, to, {RECORD, server.configuration, static_cast<u8>(b), block.version, block.history,
                                 static_cast<u16>(needed & bit(to) ? waiting : 0)});
}

static void hand_over(State& state, int me, int b) {
    Server& server = state.server(me);
    Block& block = server.blocks[b];
    const Configuration& table = state.configurations[server.configuration];
    if (rules.acked_handover && !acknowledged(state, me, b)) return;
    block.handed = bit(table.owner[b]);
    send(state, me, table.owner[b], {HANDOVER, server.configuration, static_cast<u8>(b), block.version, block.history, 0});
    block.role = table.follower[b] == me ? COPY : FROZEN;
    block.streams = block.acked = 0;
    if (!rules.keep_copies && block.role == FROZEN) forget(block);
}

// Answer and make what can be, until nothing more can. Return whether there is something new.
static void settle_block(State& state, int me, int b) {
    Server& server = state.server(me);
    Block& block = server.blocks[b];
    const Configuration& table = state.configurations[server.configuration];
    if (block.role == LEAVING) hand_over(state, me, b);
    if (block.role != OWNER || table.owner[b] != me) return;
    for (;;) {
        if (acknowledged(state, me, b)) hears_guarded(state, me, server.configuration, b);
        u8 ready = 0;
        for (int w = W1; w <= W2; w++) {
            Message& push = block.pushes[w - W1];
            if (!push.kind || !(table.workers & bit(w))) continue;
            if (push.configuration != server.configuration && rules.drop_pushes) continue;
            if (push.version == block.version) ready |= bit(w);
            if (push.version >= block.version || !acknowledged(state, me, b)) continue;
            if (push.kind == PUSH) publish(state, me, w, b, server.configuration);
            push = Message{};
        }
        if (ready != table.workers) return;
        update(state, me, b);
        if (!rules.acked_values)
            for (int w = W1; w <= W2; w++)
                if (ready & bit(w)) publish(state, me, w, b, server.configuration), block.pushes[w - W1] = Message{};
    }
}

void settle(State& state, int me) {
    Server& server = state.server(me);
    for (int b = 0; b < scope.blocks; b++) settle_block(state, me, b);
    if (!server.armed) return;
    bool owns = false, reached = true;
    for (int b = 0; b < scope.blocks; b++)
        if (server.blocks[b].role == OWNER) owns = true, reached = reached && server.blocks[b].version >= server.clock;
    if (reached && (owns || !server.clock)) server_adopts(state, me, server.prepared);
}
