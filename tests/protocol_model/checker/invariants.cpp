// What must be so of the values that are sent, seen and owned.
#include "nodes.h"

static bool survives(const State& state, int worker) { return state.worker(worker).alive && !(state.k.dead & bit(worker)); }

// The highest version of a block that a worker has, installed or not, and its history.
static int newest(const State& state, int w, int b, History& history) {
    const Worker& worker = state.worker(w);
    bool waiting = worker.slab & bit(b);
    history = waiting ? worker.next[b] : worker.own[b];
    return worker.version + (waiting ? 1 : 0);
}

void check_published(State& state, int sender, int b) {
    if (scope.overlap) return;  // of an owner without a follower values may be lost with it: then only what was seen counts
    const Block& block = state.server(sender).blocks[b];
    History& known = state.published[b][block.version];
    if (known && known != block.history + 1) fail("two values of one version of a block are published");
    known = static_cast<History>(block.history + 1);
}

void check_new_owner(State& state, int server, int b) {
    if (state.k.dead & bit(server)) return;  // one that is expelled may take itself for the owner: nobody hears it
    const Block& block = state.server(server).blocks[b];
    if (!scope.overlap && block.version < state.seen[b]) fail("a version that a worker has seen is undone");
    for (int w = W1; w <= W2; w++) {
        History history;
        int version = newest(state, w, b, history);
        if (!survives(state, w)) continue;
        if (block.version < version) fail("a version that a worker has seen is undone");
        else if (up_to(block.history, version) != history) fail("the new owner has another history than a worker has seen");
    }
}

void check_seen(State& state, int worker, const Message& value) {
    if (!scope.overlap && state.seen[value.block] < value.version) state.seen[value.block] = value.version;
    int other = worker == W1 ? W2 : W1;
    if (!survives(state, worker) || !survives(state, other)) return;
    History history;
    int version = newest(state, other, value.block, history);
    int both = version < value.version ? version : value.version;
    if (up_to(history, both) != up_to(value.history, both)) fail("two workers see different values of one version");
}
