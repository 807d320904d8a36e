// The coordinator: plans, and what it makes of a death. What nodes tell it arrives at once; it acts on it whenever it likes.
#include "nodes.h"

static bool heard(const State& state, int node) { return !(state.k.dead & bit(node)) && !(state.cut[node] & bit(K)); }

u8 members(const State& state, int configuration) {
    u8 servers = static_cast<u8>(bit(S1) | bit(S2) | bit(S3));
    return static_cast<u8>((state.configurations[configuration].workers | servers) & ~state.k.dead);
}

static void tell(State& state, u8 to, Kind kind, int configuration, int extra = 0) {
    for (int node = W1; node <= S3; node++)
        if (to & bit(node)) send(state, K, node, {kind, static_cast<u8>(configuration), 0, 0, 0, static_cast<u16>(extra)});
}

void hears_prepared(State& state, int node, int configuration) {
    Coordinator& k = state.k;
    if (!heard(state, node)) return;
    if (k.death ? configuration != k.death : configuration != k.plan || k.phase != ASSIGNED) return;
    k.prepared |= bit(node);
    if (!k.death) {
        u8 all = members(state, k.plan);
        if ((k.prepared & all) == all) k.phase = SYNCING;
        return;
    }
    for (int b = 0; b < scope.blocks; b++) {
        if (is_worker(node)) {
            const Worker& worker = state.worker(node);
            u8 seen = static_cast<u8>(worker.version + ((worker.slab & bit(b)) ? 1 : 0));
            if (k.seen[b] < seen) k.seen[b] = seen;
        } else {
            k.role[node - S1][b] = state.server(node).blocks[b].role;
            k.version[node - S1][b] = state.server(node).blocks[b].version;
        }
    }
}

void hears_synced(State& state, int node, int configuration, int b) {
    if (heard(state, node) && (configuration == state.k.plan || !rules.synced_by_plan)) state.k.synced[b] |= bit(node);
}

void hears_switched(State& state, int node, int configuration) {
    Coordinator& k = state.k;
    if (heard(state, node) && configuration == (k.death ? k.death : k.plan)) k.switched |= bit(node);
}

void hears_arrived(State& state, int node, int b) {
    if (heard(state, node)) state.k.arrived |= bit(b);
}

void hears_guarded(State& state, int node, int configuration, int b) {
    Coordinator& k = state.k;
    if (heard(state, node) && configuration == (k.death ? k.death : k.plan)) k.guarded |= bit(b);
}

static bool all_synced(const State& state) {
    const Coordinator& k = state.k;
    const Configuration &now = state.configurations[k.current], &next = state.configurations[k.plan];
    for (int b = 0; b < scope.blocks; b++)
        for (int server : {next.owner[b], next.follower[b]})
            if (server && !names(now, server, b) && !(k.synced[b] & bit(server))) return false;
    return true;
}

void start_plan(State& state, const Configuration& wanted) {
    Coordinator& k = state.k;
    k.plan = ++k.last;
    state.configurations[k.plan] = wanted;
    k.phase = ASSIGNED;
    k.prepared = k.switched = k.told_rest = k.arrived = k.guarded = 0;
    k.synced[0] = k.synced[1] = 0;
    tell(state, members(state, k.plan), PREPARE, k.plan);
}

bool may_arm(const State& state) { return state.k.phase == SYNCING && !state.k.death && all_synced(state); }

void arm(State& state, int clock) {
    state.k.phase = ARMED;
    state.k.clock = static_cast<u8>(clock);
    tell(state, members(state, state.k.plan), ARM, state.k.plan, clock);
}

bool may_tell_rest(const State& state) {
    const Coordinator& k = state.k;
    return k.phase == ARMED && !k.death && k.switched && !k.told_rest && (members(state, k.plan) & ~k.switched);
}

void tell_rest(State& state) {
    state.k.told_rest = 1;
    tell(state, static_cast<u8>(members(state, state.k.plan) & ~state.k.switched), ADOPT, state.k.plan);
}

bool may_commit(const State& state) {
    const Coordinator& k = state.k;
    int next = k.death ? k.death : k.plan;
    if (k.death ? !k.decided : k.phase != ARMED) return false;
    u8 all = members(state, next);
    if ((k.switched & all) != all) return false;
    const Configuration &now = state.configurations[k.current], &then = state.configurations[next];
    for (int b = 0; b < scope.blocks; b++) {
        if (then.promoted & bit(b)) continue;
        bool moves = now.owner[b] != then.owner[b], refollowed = then.follower[b] && now.follower[b] != then.follower[b];
        if (rules.commit_on_arrival && moves && !(k.arrived & bit(b))) return false;
        if (rules.commit_when_acked && refollowed && !(k.guarded & bit(b))) return false;
    }
    return true;
}

static bool covered(const State& state, int configuration) {
    for (int b = 0; b < scope.blocks; b++)
        if (!state.configurations[configuration].follower[b]) return false;
    return true;
}

bool all_protected(const State& state) {
    const Coordinator& k = state.k;
    if (k.death || k.suspects) return false;
    bool soon = !rules.protected_when_committed && k.phase >= SYNCING && all_synced(state) && covered(state, k.plan);
    return soon || (k.phase == IDLE && covered(state, k.current));
}

static void tell_committed(State& state) {
    tell(state, static_cast<u8>(members(state, state.k.current) & ~(bit(W1) | bit(W2))), COMMITTED, state.k.current);
}

static void make_followers(State& state) {
    const Coordinator& k = state.k;
    if (!scope.reprotect || covered(state, k.current)) return;
    Configuration wanted = state.configurations[k.current];
    wanted.promoted = wanted.dead = 0;
    for (int b = 0; b < scope.blocks; b++)
        for (int server = S1; server <= S3 && !wanted.follower[b]; server++)
            if (server != wanted.owner[b] && !(k.dead & bit(server))) wanted.follower[b] = static_cast<u8>(server);
    if (std::memcmp(&wanted.follower, &state.configurations[k.current].follower, sizeof wanted.follower)) start_plan(state, wanted);
}

void commit(State& state) {
    Coordinator& k = state.k;
    k.current = k.death ? k.death : k.plan;
    k.plan = k.phase = k.clock = k.death = k.base = k.decided = k.told_rest = k.arrived = k.guarded = k.prepared = k.switched = 0;
    k.synced[0] = k.synced[1] = 0;
    tell_committed(state);
    make_followers(state);
}

// What a death begins with: what it builds on, without who is expelled. Owners are promoted when the survivors have answered.
static Configuration table_without_dead(const State& state) {
    const Coordinator& k = state.k;
    Configuration table = state.configurations[k.base];
    table.workers &= static_cast<u8>(~k.dead);
    if (!table.dead || !rules.keep_promoted) table.promoted = 0;  // who was promoted by a death before this one may not have heard of it yet
    table.dead = k.dead;
    return table;
}

static void forget_answers(State& state) {
    Coordinator& k = state.k;
    k.prepared = 0;
    std::memset(k.role, 0, sizeof k.role);
    std::memset(k.version, 0, sizeof k.version);
    std::memset(k.seen, 0, sizeof k.seen);
}

void expel(State& state, int node) {
    Coordinator& k = state.k;
    k.dead |= bit(node);
    k.suspects &= scope.cuts.empty() ? static_cast<u8>(~bit(node)) : 0;
    // A death builds on one that is decided; where another is not, this one takes its place. Else it builds on the plan,
    // where that is ARMED; before, the plan is cancelled.
    if (k.death && k.decided) k.base = k.death;
    else if (!k.death) {
        if (k.phase != ARMED) k.plan = k.phase = 0;
        k.base = k.plan ? k.plan : k.current;
    }
    k.death = ++k.last;
    k.decided = k.switched = 0;
    forget_answers(state);
    state.configurations[k.death] = table_without_dead(state);
    state.channels[K][node] = Channel{};
    tell(state, members(state, k.death), PREPARE, k.death);
}

bool may_decide(const State& state) {
    const Coordinator& k = state.k;
    if (!k.death || k.decided) return false;
    u8 needed = members(state, k.death);
    if (!rules.all_prepared) needed &= static_cast<u8>(~(bit(W1) | bit(W2)));
    return (k.prepared & needed) == needed;
}

// The survivor that has the block's highest version, among those that a configuration since the one in force names.
static int best_copy(const State& state, int b) {
    const Coordinator& k = state.k;
    const Configuration &old = state.configurations[k.current], &base = state.configurations[k.base];
    int best = 0;
    for (int server : {old.owner[b], base.follower[b], old.follower[b], base.owner[b], u8(S1), u8(S2), u8(S3)}) {
        if (!server || (k.dead & bit(server))) continue;
        bool named = !rules.named_copies;
        for (int c = k.current; c <= k.base; c++) named = named || names(state.configurations[c], server, b);
        u8 role = k.role[server - S1][b];
        if (!named || role == NONE || role == PARTIAL) continue;
        if (!rules.highest_copy && base.follower[b] && !(k.dead & bit(base.follower[b]))) return base.follower[b];
        if (!best || k.version[server - S1][b] > k.version[best - S1][b]) best = server;
    }
    return best;
}

static void restore(State& state) {
    state.k.restored = 1;
    if (!state.k.may_restore) fail("the job goes back to its checkpoint");
}

static void choose_owner(State& state, int b) {
    Coordinator& k = state.k;
    Configuration& table = state.configurations[k.death];
    const Configuration& now = state.configurations[k.current];
    auto died = [&](int server) { return !server || (k.dead & bit(server)); };
    int next = table.owner[b], old = now.owner[b];
    if (died(table.follower[b])) table.follower[b] = 0;
    if (!died(next) && !died(old)) return;
    if (!died(next) && k.role[next - S1][b] == OWNER && rules.ask_for_owner) return;
    bool lives = !died(old) && (k.role[old - S1][b] == OWNER || k.role[old - S1][b] == LEAVING) && rules.living_owner;
    int best = lives ? old : best_copy(state, b);
    bool behind = best && !lives && rules.version_check && k.version[best - S1][b] < k.seen[b];
    if (!best || behind) return restore(state);
    table.owner[b] = static_cast<u8>(best);
    table.follower[b] = lives && !died(now.follower[b]) ? now.follower[b] : 0;  // a copy that becomes the owner has none yet
    table.promoted |= bit(b);
}

void decide(State& state) {
    Coordinator& k = state.k;
    k.decided = 1;
    for (int b = 0; b < scope.blocks; b++) choose_owner(state, b);
    forget_answers(state);
    if (!state.configurations[k.death].workers) k.restored = 1;  // nobody is left to train
    tell(state, members(state, k.death), ADOPT, k.death);
}

void restart(State& state) {
    Coordinator& k = state.k;
    for (Channel& channel : state.channels[K]) channel = Channel{};
    forget_answers(state);
    k.switched = k.told_rest = k.arrived = k.guarded = k.synced[0] = k.synced[1] = 0;
    if (k.death && k.decided && !rules.journal_decision) {
        k.decided = 0;
        state.configurations[k.death] = table_without_dead(state);
    }
    if (k.death) return tell(state, members(state, k.death), k.decided ? ADOPT : PREPARE, k.death);
    if (k.phase == ARMED) return tell(state, members(state, k.plan), ARM, k.plan, k.clock);
    int cancelled = k.plan;
    k.plan = k.phase = 0;
    tell_committed(state);
    if (cancelled) tell(state, members(state, k.current), CANCEL, cancelled);
    make_followers(state);
}
