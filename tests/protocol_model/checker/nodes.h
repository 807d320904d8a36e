// What nodes and the coordinator do; each function changes the state in one indivisible action.
#pragma once
#include "rules.h"
#include "state.h"

// server.cpp
void deliver_to_server(State& state, int from, int me, const Message& message);
bool server_holds(const State& state, int me, const Message& message);  // the message must wait for an order
void begin_streams_again(State& state, int me, int peer);               // after a reset

// invariants.cpp
void check_published(State& state, int sender, int b);             // all values of one version that are sent are the same
void check_new_owner(State& state, int server, int b);             // it has what workers have seen
void check_seen(State& state, int worker, const Message& value);   // survivors see the same

// publishing.cpp
u8 required(const State& state, int me, int b);  // who must have acknowledged before the block's version is published
void publish(State& state, int me, int worker, int b, int configuration);
void become_owner(State& state, int me, int b, u8 streams, u8 acked);
void start_stream(State& state, int me, int to, int b, int configuration);
void settle(State& state, int me);

// adoption.cpp
void server_adopts(State& state, int me, int configuration);
void server_prepares(State& state, int me, int configuration);
void server_commits(State& state, int me);
void server_cancels(State& state, int me, int configuration);
void reports_again(State& state, int me);  // to a coordinator that was started again
void forget(Block& block);

// worker.cpp
void deliver_to_worker(State& state, int from, int me, const Message& message);
void compute(State& state, int me);
void worker_adopts(State& state, int me, int configuration);
void push_again(State& state, int me, int server);  // after a reset

// coordinator.cpp
void hears_prepared(State& state, int node, int configuration);
void hears_synced(State& state, int node, int configuration, int b);
void hears_switched(State& state, int node, int configuration);
void hears_arrived(State& state, int node, int b);
void hears_guarded(State& state, int node, int configuration, int b);
void start_plan(State& state, const Configuration& wanted);
bool may_arm(const State& state);
void arm(State& state, int clock);
bool may_tell_rest(const State& state);
void tell_rest(State& state);
bool may_commit(const State& state);
void commit(State& state);
void expel(State& state, int node);
void restart(State& state);
bool may_decide(const State& state);
void decide(State& state);
bool all_protected(const State& state);
u8 members(const State& state, int configuration);  // who is in it and has not been expelled

inline bool names(const Configuration& table, int server, int b) { return table.owner[b] == server || table.follower[b] == server; }
// Whether a node that has prepared a configuration may adopt it because a peer names it. Not a death's: who owns what in it
// depends on what the survivors answer, so its assignment is known from the coordinator's ADOPT only.
inline bool by_peers(const State& state, int configuration) { return !state.configurations[configuration].dead; }
