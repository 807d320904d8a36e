// All that can happen in a state: deliveries, computations, decisions of the coordinator, faults.
#pragma once
#include <vector>

#include "nodes.h"

enum ActionKind : u8 { DELIVER, COMPUTE, ARM_PLAN, TELL_REST, COMMIT, DECIDE, EXPEL, CRASH, LOSE, CUT, RESET, RESTART };

struct Action {
    u8 kind, first, second;
    bool is_fault() const { return kind >= CRASH; }
};

State first_state();
void enabled_actions(const State& state, std::vector<Action>& actions);
void perform(State& state, Action action);
// Say what is wrong with a state in which nothing is left to do but faults; empty where all is well.
std::string check_end(const State& state);
std::string told(const State& before, Action action);
