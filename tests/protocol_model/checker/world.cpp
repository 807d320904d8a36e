#include "world.h"

static void tidy(State& state);

static Configuration table_of(const std::string& plan) {
    Configuration table{};
    table.workers = bit(W1) | bit(W2);
    table.owner[0] = S1, table.follower[0] = S2;
    if (scope.blocks == 2) table.owner[1] = S2, table.follower[1] = S3;
    if (plan == "move") table.owner[0] = S3;
    if (plan == "move-back") table.owner[0] = S3, table.follower[0] = S1;
    if (plan == "promote") table.owner[0] = S2, table.follower[0] = S3;
    if (plan == "swap") table.owner[0] = S2, table.follower[0] = S1;
    if (plan == "refollow") table.follower[0] = S3;
    if (plan == "both") table.owner[0] = S3, table.follower[0] = S1, table.follower[1] = S1;
    return table;
}

State first_state() {
    State state;
    std::memset(&state, 0, sizeof state);
    const Configuration& table = state.configurations[1] = table_of("none");
    state.k.current = state.k.last = 1;
    for (Worker& worker : state.workers) worker.alive = worker.configuration = worker.sliced_by = 1;
    for (int s = S1; s <= S3; s++) {
        Server& server = state.server(s);
        server.alive = server.configuration = 1;
        for (int b = 0; b < scope.blocks; b++) {
            if (table.follower[b] == s) server.blocks[b].role = COPY;
            if (table.owner[b] != s) continue;
            server.blocks[b].role = OWNER;
            server.blocks[b].streams = server.blocks[b].acked = bit(table.follower[b]);
        }
    }
    if (scope.plan != "none") start_plan(state, table_of(scope.plan));
    if (!scope.slow_compute)
        for (int w = W1; w <= W2; w++) compute(state, w);
    tidy(state);
    return state;
}

static bool in_force(const State& state, int node) { return state.alive(node) && !(state.k.dead & bit(node)); }

static void possible_faults(const State& state, std::vector<Action>& actions) {
    auto add = [&](ActionKind kind, size_t first) { actions.push_back({kind, static_cast<u8>(first), 0}); };
    if (state.k.faults < scope.faults && (!state.k.faults || all_protected(state) || scope.overlap)) {
        for (int node = W1; node <= S3; node++) {
            if (!in_force(state, node)) continue;
            if (scope.crash >> node & 1) add(CRASH, node);
            if (scope.falsely >> node & 1) add(LOSE, node);
        }
        for (size_t i = 0; i < scope.cuts.size(); i++)
            if (in_force(state, scope.cuts[i].first) && in_force(state, scope.cuts[i].second)) add(CUT, i);
    }
    if (state.k.restarts < scope.restarts) add(RESTART, 0);
    if (state.k.resets < scope.resets)
        for (size_t i = 0; i < scope.reset_pairs.size(); i++) {
            auto [a, b] = scope.reset_pairs[i];
            bool connected = state.alive(a) && state.alive(b) && !(state.fenced(a) & bit(b)) && !(state.fenced(b) & bit(a));
            if (connected && (state.channels[a][b].count || state.channels[b][a].count)) add(RESET, i);
        }
}

void enabled_actions(const State& state, std::vector<Action>& actions) {
    actions.clear();
    if (state.k.restored) return;
    auto add = [&](ActionKind kind, int first, int second = 0) {
        actions.push_back({kind, static_cast<u8>(first), static_cast<u8>(second)});
    };
    for (int from = K; from <= S3; from++)
        for (int to = W1; to <= S3; to++) {
            const Channel& channel = state.channels[from][to];
            if (channel.count && !(is_server(to) && server_holds(state, to, channel.messages[0]))) add(DELIVER, from, to);
        }
    for (int w = W1; w <= W2; w++) {
        const Worker& worker = state.worker(w);
        if (worker.alive && !worker.computed && worker.version < scope.steps) add(COMPUTE, w);
    }
    if (may_arm(state))
        for (int clock = scope.clock_low; clock <= scope.clock_high; clock++) add(ARM_PLAN, clock);
    if (may_tell_rest(state)) add(TELL_REST, 0);
    if (may_commit(state)) add(COMMIT, 0);
    if (may_decide(state)) add(DECIDE, 0);
    for (int node = W1; node <= S3; node++)
        if (state.k.suspects & bit(node)) add(EXPEL, node);
    possible_faults(state, actions);
}

static void crash(State& state, int node) {
    for (int from = K; from <= S3; from++) state.channels[from][node] = Channel{};
    if (is_worker(node)) state.worker(node) = Worker{};
    else state.server(node) = Server{};
    state.k.suspects |= bit(node);
}

static void reset(State& state, int a, int b) {
    state.channels[a][b] = state.channels[b][a] = Channel{};
    for (auto [me, peer] : {std::pair{a, b}, std::pair{b, a}})
        if (is_worker(me)) push_again(state, me, peer);
        else if (is_server(peer)) begin_streams_again(state, me, peer);
}

static void inject(State& state, Action action) {
    if (action.kind == RESTART) {
        state.k.restarts++;
        return restart(state);
    }
    if (action.kind == RESET) {
        state.k.resets++;
        return reset(state, scope.reset_pairs[action.first].first, scope.reset_pairs[action.first].second);
    }
    if (state.k.faults && !all_protected(state)) state.k.may_restore = 1;
    state.k.faults++;
    if (action.kind == CRASH) return crash(state, action.first);
    if (action.kind == LOSE) {
        int node = action.first;
        state.cut[node] |= bit(K);
        state.cut[K] |= bit(node);
        state.channels[K][node] = Channel{};
        state.k.suspects |= bit(node);
        return;
    }
    auto [from, to] = scope.cuts[action.first];
    state.cut[from] |= bit(to);
    state.k.suspects |= bit(from) | bit(to);
}

static bool commits_something(const State& state, int me) {
    const Server& server = state.server(me);
    for (int b = 0; b < scope.blocks; b++)
        if (server.blocks[b].handed || (server.blocks[b].role != NONE && !names(state.configurations[server.configuration], me, b))) return true;
    return false;
}

// Return whether a message can do nothing any more, now or later.
static bool is_spent(const State& state, int from, int to, const Message& message) {
    if (from != K && (state.fenced(to) & bit(from))) return true;
    int configuration = is_worker(to) ? state.worker(to).configuration : state.server(to).configuration;
    switch (message.kind) {
        case PREPARE: return message.configuration < configuration || (message.configuration == configuration && rules.journal_decision);
        case REFUSED: return message.configuration <= configuration;
        case VALUE: return message.version <= state.worker(to).version && message.configuration <= configuration;
        case ACK: {
            const Block& block = state.server(to).blocks[message.block];
            return (block.role == OWNER || block.role == LEAVING) &&
                   (message.version < block.version || (message.version == block.version && (block.acked & bit(from))));
        }
        case COMMITTED: return rules.hold_unknown && !commits_something(state, to);
        default: return false;
    }
}

static void drop_first(Channel& channel) {
    for (int i = 1; i < channel.count; i++) channel.messages[i - 1] = channel.messages[i];
    channel.messages[--channel.count] = Message{};
}

// What others could not see a node do need not be delayed: to prepare a plan, to answer again what it has adopted.
static bool may_come_at_once(const State& state, int from, int to, const Message& message) {
    if (from != K) return false;
    int configuration = is_worker(to) ? state.worker(to).configuration : state.server(to).configuration;
    if (message.kind == ADOPT || message.kind == ARM) return message.configuration <= configuration;
    return is_worker(to) && message.kind == PREPARE && !state.configurations[message.configuration].dead;
}

static void deliver(State& state, int from, int to, const Message& message) {
    if (is_worker(to)) deliver_to_worker(state, from, to, message);
    else deliver_to_server(state, from, to, message);
}

static void tidy(State& state) {
    for (int from = K; from <= S3; from++)
        for (int to = W1; to <= S3; to++) {
            Channel& channel = state.channels[from][to];
            while (channel.count) {
                Message message = channel.messages[0];
                bool spent = is_spent(state, from, to, message);
                if (!spent && !may_come_at_once(state, from, to, message)) break;
                drop_first(channel);
                if (!spent) deliver(state, from, to, message);
            }
        }
    // Nothing that comes later changes what is decided, and its messages may be delayed as long as one likes.
    if (rules.all_prepared && may_decide(state)) decide(state);
}

void perform(State& state, Action action) {
    switch (action.kind) {
        case DELIVER: {
            Channel& channel = state.channels[action.first][action.second];
            Message message = channel.messages[0];
            drop_first(channel);
            deliver(state, action.first, action.second, message);
            break;
        }
        case COMPUTE: compute(state, action.first); break;
        case ARM_PLAN: arm(state, action.first); break;
        case TELL_REST: tell_rest(state); break;
        case COMMIT: commit(state); break;
        case DECIDE: decide(state); break;
        case EXPEL: expel(state, action.first); break;
        default: inject(state, action);
    }
    tidy(state);
}

std::string check_end(const State& state) {
    const Coordinator& k = state.k;
    if (k.restored) return "";
    for (int w = W1; w <= W2; w++)
        if (in_force(state, w) && state.worker(w).version != scope.steps) return "a worker waits for ever";
    if (k.death || k.phase != IDLE) return "a plan never ends";
    const Configuration& table = state.configurations[k.current];
    for (int node = W1; node <= S3; node++) {
        if (!in_force(state, node)) continue;
        int configuration = is_worker(node) ? state.worker(node).configuration : state.server(node).configuration;
        if (configuration != k.current) return "a survivor ends in another configuration";
    }
    for (int b = 0; b < scope.blocks; b++) {
        const Block& owner = state.server(table.owner[b]).blocks[b];
        if (owner.role != OWNER || owner.version != scope.steps) return "a block is not complete at its owner";
        if (!table.follower[b]) continue;
        const Block& follower = state.server(table.follower[b]).blocks[b];
        if (follower.role != COPY || follower.history != owner.history) return "a follower has other bytes than its owner";
    }
    return "";
}

std::string told(const State& before, Action action) {
    std::string first = NODE_NAME[action.first % NODES];
    auto pair = [](std::pair<int, int> nodes) { return std::string(NODE_NAME[nodes.first]) + " and " + NODE_NAME[nodes.second]; };
    switch (action.kind) {
        case DELIVER: return first + " -> " + NODE_NAME[action.second] + ": " + told(before.channels[action.first][action.second].messages[0]);
        case COMPUTE: return first + " computes its gradient and pushes it";
        case ARM_PLAN: return "K arms its plan with clock " + std::to_string(action.first);
        case TELL_REST: return "K tells the rest to adopt";
        case COMMIT: return "K commits";
        case DECIDE: return "K decides the death's configuration";
        case EXPEL: return "K expels " + first;
        case CRASH: return "FAULT: " + first + " crashes";
        case LOSE: return "FAULT: K and " + first + " lose each other, peers do not";
        case CUT: return "FAULT: from now on messages from the first to the second are lost: " + pair(scope.cuts[action.first]);
        case RESTART: return "FAULT: K is killed and starts from its journal";
        default: return "FAULT: the connection breaks and comes back between " + pair(scope.reset_pairs[action.first]);
    }
}
