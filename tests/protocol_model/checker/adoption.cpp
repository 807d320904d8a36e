// How a server goes from one configuration to the next.
#include "nodes.h"

void forget(Block& block) { block = Block{}; }

static void set_streams(State& state, int me, int b, u8 wanted) {
    Block& block = state.server(me).blocks[b];
    block.streams &= wanted;
    block.acked &= wanted;
    for (int to = S1; to <= S3; to++)
        if (wanted & ~block.streams & bit(to)) start_stream(state, me, to, b, state.server(me).configuration);
}

static void conform(State& state, int me, int b) {
    Server& server = state.server(me);
    Block& block = server.blocks[b];
    const Configuration& table = state.configurations[server.configuration];
    u8 followers = table.follower[b] ? bit(table.follower[b]) : 0;
    bool mine = table.owner[b] == me, promoted = table.promoted & bit(b);
    for (Message& push : block.pushes)
        if (push.configuration < server.configuration && rules.drop_pushes) push = Message{};
    if (block.role == OWNER || block.role == LEAVING) {
        if (mine) block.role = OWNER, set_streams(state, me, b, followers);
        else if (promoted) forget(block);
        else block.role = LEAVING;
    } else if (block.role == COPY || block.role == FROZEN) {
        if (mine && promoted) become_owner(state, me, b, 0, 0), set_streams(state, me, b, followers);
        else if (promoted && !names(table, me, b)) forget(block);
        else if (!rules.keep_copies && !names(table, me, b)) forget(block);
    } else if (mine && promoted) {
        fail("a server without the block becomes its owner");
    }
}

void server_adopts(State& state, int me, int configuration) {
    Server& server = state.server(me);
    if (configuration <= server.configuration) return;
    if (server.prepared != configuration) return fail("a server adopts a configuration that it has not prepared");
    server.configuration = static_cast<u8>(configuration);
    server.prepared = server.armed = server.clock = 0;
    for (int b = 0; b < scope.blocks; b++) conform(state, me, b);
    if (rules.repeat_arrived) return reports_again(state, me);
    hears_switched(state, me, configuration);
    settle(state, me);
}

void server_prepares(State& state, int me, int configuration) {
    Server& server = state.server(me);
    if (configuration == server.configuration && !rules.journal_decision) return hears_prepared(state, me, configuration);
    if (configuration <= server.configuration) return;
    const Configuration& table = state.configurations[configuration];
    server.prepared = static_cast<u8>(configuration);
    server.armed = server.clock = 0;
    if (table.dead) {
        if (rules.server_fence) server.fenced |= table.dead;
    } else {
        for (int b = 0; b < scope.blocks; b++) {
            Block& block = server.blocks[b];
            for (int to : {table.owner[b], table.follower[b]})
                if (block.role == OWNER && to && to != me && !(block.streams & bit(to))) start_stream(state, me, to, b, configuration);
            if (block.role == COPY && !rules.hold_unknown) hears_synced(state, me, configuration, b);
        }
    }
    hears_prepared(state, me, configuration);
}

void server_commits(State& state, int me) {
    Server& server = state.server(me);
    for (int b = 0; b < scope.blocks; b++) {
        Block& block = server.blocks[b];
        bool spare = block.role == COPY || block.role == FROZEN || block.role == PARTIAL;
        if (spare && !names(state.configurations[server.configuration], me, b)) forget(block);
        block.handed = 0;
    }
}

void server_cancels(State& state, int me, int configuration) {
    Server& server = state.server(me);
    server.cancelled = static_cast<u8>(configuration);
    if (server.prepared != configuration) return;
    server.prepared = server.armed = server.clock = 0;
    const Configuration& table = state.configurations[server.configuration];
    for (int b = 0; b < scope.blocks; b++)
        if (server.blocks[b].role == OWNER) set_streams(state, me, b, table.follower[b] ? bit(table.follower[b]) : 0);
    server_commits(state, me);
}

void reports_again(State& state, int me) {
    Server& server = state.server(me);
    hears_switched(state, me, server.configuration);
    for (int b = 0; b < scope.blocks; b++)
        if (server.blocks[b].role == OWNER) hears_arrived(state, me, b);
    settle(state, me);
}
