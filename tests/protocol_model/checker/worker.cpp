// What a worker does: compute, push, install a step when all of it is here, switch.
#include "nodes.h"

static void push(State& state, int me, int b) {
    Worker& worker = state.worker(me);
    int owner = state.configurations[worker.configuration].owner[b];
    History other = scope.blocks == 2 ? worker.own[1 - b] : 0;
    send(state, me, owner, {PUSH, worker.configuration, static_cast<u8>(b), worker.version, worker.own[b],
                            static_cast<u16>(other | worker.sliced_by << 12)});
}

static void push_open(State& state, int me) {
    Worker& worker = state.worker(me);
    if (!worker.computed) return;
    for (int b = 0; b < scope.blocks; b++)
        if (!(worker.slab & bit(b))) push(state, me, b);
}

void compute(State& state, int me) {
    Worker& worker = state.worker(me);
    if (worker.computed || worker.version >= scope.steps) return;
    worker.computed = 1;
    worker.sliced_by = worker.configuration;
    push_open(state, me);
}

void push_again(State& state, int me, int server) {
    Worker& worker = state.worker(me);
    const Configuration& table = state.configurations[worker.configuration];
    if (!worker.computed || !rules.push_on_reconnect) return;
    for (int b = 0; b < scope.blocks; b++)
        if (!(worker.slab & bit(b)) && (table.owner[b] == server || (scope.chain && table.follower[b] == server))) push(state, me, b);
}

void worker_adopts(State& state, int me, int configuration) {
    Worker& worker = state.worker(me);
    if (configuration <= worker.configuration) return;
    if (worker.prepared != configuration) return fail("a worker adopts a configuration that it has not prepared");
    worker.configuration = static_cast<u8>(configuration);
    worker.prepared = worker.armed = worker.clock = 0;
    if (state.configurations[configuration].workers != state.configurations[worker.sliced_by].workers) worker.computed = 0;
    hears_switched(state, me, configuration);
    if (worker.computed) push_open(state, me);
    else if (!scope.slow_compute) compute(state, me);
}

static void at_boundary(State& state, int me) {
    Worker& worker = state.worker(me);
    if (worker.armed && worker.version >= worker.clock) worker_adopts(state, me, worker.prepared);
}

static void install(State& state, int me) {
    Worker& worker = state.worker(me);
    for (int b = 0; b < scope.blocks; b++) {
        // W1 and S1 share a host, so the value is read from S1's two images now, not when it was named.
        const Block& image = state.server(S1).blocks[b];
        bool shared = me == W1 && worker.sender[b] == S1 && state.server(S1).alive && image.role != NONE;
        if (shared && image.version > worker.version + 2) fail("a worker reads an image that was written again");
        if (shared && image.version > worker.version && up_to(image.history, worker.version + 1) != worker.next[b])
            fail("a worker reads other values in an image than it was told of");
        worker.own[b] = worker.next[b];
        worker.next[b] = 0;
        worker.sender[b] = 0;
    }
    worker.slab = 0;
    worker.computed = 0;
    worker.version++;
    at_boundary(state, me);
    if (!scope.slow_compute) compute(state, me);
}

static void takes_value(State& state, int from, int me, const Message& value) {
    Worker& worker = state.worker(me);
    int b = value.block;
    if (!rules.value_by_version && value.configuration < worker.configuration) return;
    if (value.configuration > worker.configuration && value.configuration == worker.prepared && by_peers(state, value.configuration))
        worker_adopts(state, me, value.configuration);
    if (value.version <= worker.version) return;
    if (value.version > worker.version + 1) return fail("a worker is sent a version beyond the next one");
    if (worker.slab & bit(b)) {
        if (worker.next[b] != value.history) fail("a worker gets two values of one version");
        return;
    }
    check_seen(state, me, value);
    worker.slab |= bit(b);
    worker.next[b] = value.history;
    worker.sender[b] = static_cast<u8>(from);
    if (worker.slab == (1 << scope.blocks) - 1) install(state, me);
}

static void prepares(State& state, int me, int configuration) {
    Worker& worker = state.worker(me);
    if (configuration == worker.configuration && !rules.journal_decision) return hears_prepared(state, me, configuration);
    if (configuration <= worker.configuration) return;
    worker.prepared = static_cast<u8>(configuration);
    worker.armed = worker.clock = 0;
    u8 dead = state.configurations[configuration].dead;
    if (rules.worker_fence) worker.fenced |= dead;
    for (int b = 0; b < scope.blocks; b++)
        if (rules.empty_slab && worker.sender[b] && (dead & bit(worker.sender[b]))) {
            worker.slab &= static_cast<u8>(~bit(b));
            worker.next[b] = 0;
            worker.sender[b] = 0;
        }
    hears_prepared(state, me, configuration);
}

void deliver_to_worker(State& state, int from, int me, const Message& message) {
    Worker& worker = state.worker(me);
    switch (message.kind) {
        case VALUE: return takes_value(state, from, me, message);
        case REFUSED:
            if (message.configuration == worker.prepared && by_peers(state, message.configuration))
                worker_adopts(state, me, message.configuration);
            return;
        case PREPARE: return prepares(state, me, message.configuration);
        case ARM:
            if (worker.configuration >= message.configuration) return hears_switched(state, me, worker.configuration);
            if (worker.prepared != message.configuration) return;
            worker.armed = 1;
            worker.clock = static_cast<u8>(message.extra);
            return at_boundary(state, me);
        case ADOPT:
            if (worker.configuration >= message.configuration) return hears_switched(state, me, worker.configuration);
            return worker_adopts(state, me, message.configuration);
        case CANCEL:
            if (worker.prepared == message.configuration) worker.prepared = worker.armed = worker.clock = 0;
            return;
        default: fail("a worker gets a message that is not for it");
    }
}
