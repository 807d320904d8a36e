// Breadth first search over all states, so that the trace to a broken invariant is a shortest one.
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "world.h"

struct Result {
    std::string broken;  // empty: every state is well
    u64 states = 0, ends = 0, depth = 0;
    bool complete = false;
    std::vector<Action> trace;
};

Result search(u64 most_states);
void print_trace(const Result& result);
