// checker NAME=VALUE ...: explore a scope exhaustively. Options are in ../README.md.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "search.h"

Rules rules;
Scope scope;

namespace {

[[noreturn]] void refuse(const std::string& why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(2);
}

std::vector<std::string> split(const std::string& text, char by) {
    std::vector<std::string> parts{""};
    for (char c : text)
        if (c == by) parts.emplace_back();
        else parts.back() += c;
    return parts;
}

int node_of(const std::string& name) {
    for (int node = W1; node <= S3; node++)
        if (name == NODE_NAME[node]) return node;
    refuse("no such node: " + name);
}

int nodes_of(const std::string& names) {
    int all = 0;
    for (const std::string& name : split(names, ',')) all |= 1 << node_of(name);
    return all;
}

// Pairs as "S1>S2,S2>S1", or "all": every pair of a worker and a server, or of two servers.
std::vector<std::pair<int, int>> pairs_of(const std::string& text, bool directed) {
    std::vector<std::pair<int, int>> pairs;
    if (text == "all") {
        for (int a = W1; a <= S3; a++)
            for (int b = W1; b <= S3; b++)
                if (a != b && !(is_worker(a) && is_worker(b)) && (directed || a < b)) pairs.emplace_back(a, b);
        return pairs;
    }
    for (const std::string& pair : split(text, ',')) {
        std::vector<std::string> ends = split(pair, '>');
        if (ends.size() != 2) refuse("a pair is FROM>TO: " + pair);
        pairs.emplace_back(node_of(ends[0]), node_of(ends[1]));
    }
    return pairs;
}

void take_away(const std::string& names) {
    for (const std::string& name : split(names, ',')) {
        bool known = false;
        for (const RuleName& each : rule_names())
            if (name == each.name) rules.*(each.rule) = false, known = true;
        if (!known) refuse("no such rule: " + name);
    }
}

u64 read_options(int count, char** arguments) {
    std::map<std::string, int*> numbers = {{"blocks", &scope.blocks}, {"steps", &scope.steps}, {"faults", &scope.faults}, {"resets", &scope.resets}, {"restarts", &scope.restarts}};
    std::map<std::string, bool*> flags = {{"chain", &scope.chain}, {"slow", &scope.slow_compute}, {"reprotect", &scope.reprotect}, {"overlap", &scope.overlap}};
    u64 most = 60000000;
    for (int i = 1; i < count; i++) {
        std::string argument = arguments[i];
        size_t equals = argument.find('=');
        if (equals == std::string::npos) refuse("an option is NAME=VALUE: " + argument);
        std::string name = argument.substr(0, equals), value = argument.substr(equals + 1);
        if (numbers.count(name)) *numbers[name] = std::stoi(value);
        else if (flags.count(name)) *flags[name] = value == "1";
        else if (name == "plan") scope.plan = value;
        else if (name == "clocks") scope.clock_low = value[0] - '0', scope.clock_high = value.back() - '0';
        else if (name == "crash") scope.crash = nodes_of(value);
        else if (name == "lose") scope.falsely = nodes_of(value);
        else if (name == "cut") scope.cuts = pairs_of(value, true);
        else if (name == "reset") scope.reset_pairs = pairs_of(value, false);
        else if (name == "without") take_away(value);
        else if (name == "most") most = std::stoull(value);
        else refuse("no such option: " + name);
    }
    if (scope.steps > STEPS || scope.blocks > BLOCKS) refuse("the model has at most 2 blocks and 4 steps");
    if (!scope.faults && (scope.crash || scope.falsely || !scope.cuts.empty())) scope.faults = 1;
    if (!scope.resets && !scope.reset_pairs.empty()) scope.resets = 1;
    return most;
}

}  // namespace

int main(int count, char** arguments) {
    u64 most = read_options(count, arguments);
    auto begun = std::chrono::steady_clock::now();
    Result result = search(most);
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    const char* verdict = !result.broken.empty() ? "REFUTED" : result.complete ? "HOLDS" : "UNFINISHED";
    std::printf("%s states %llu ends %llu depth %llu seconds %.1f\n", verdict, static_cast<unsigned long long>(result.states),
                static_cast<unsigned long long>(result.ends), static_cast<unsigned long long>(result.depth), seconds);
    if (result.broken.empty()) return result.complete ? 0 : 3;
    std::printf("%s, after %zu actions:\n", result.broken.c_str(), result.trace.size());
    print_trace(result);
    return 1;
}
