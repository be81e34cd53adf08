// What libstdc++ balances, links and counts in its own library: by threads of several components, beside plain arrays.
#include <cstdio>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace {

constexpr unsigned threads = 4, numbers = 400, rounds = 1500;

std::mutex mutex;
std::map<unsigned, std::string> tree;
std::set<unsigned> members;
std::unordered_map<unsigned, unsigned> counts;
std::list<unsigned> order;
// The same, without libstdc++'s help.
unsigned present[numbers], counted[numbers];

// Each thread changes numbers of its own, so that the outcome does not depend on turns.
void change(unsigned thread)
{
    unsigned state = thread + 1;
    for (unsigned round = 0; round < rounds; round++) {
        state = state * 1664525u + 1013904223u;
        unsigned number = (state >> 8) % (numbers / threads) * threads + thread;
        std::lock_guard lock(mutex);
        if (state >> 31) {
            tree[number] = std::to_string(number);
            members.insert(number);
            present[number] = 1;
        } else {
            tree.erase(number);
            members.erase(number);
            present[number] = 0;
        }
        counts[number]++;
        counted[number]++;
        order.push_back(number);
        if (order.size() > 50) order.pop_front();
    }
}

bool same()
{
    unsigned found = 0, last = 0;
    for (const auto &[number, text] : tree) {
        if (!present[number] || text != std::to_string(number) || (found && number <= last)) return false;
        last = number;
        found++;
    }
    unsigned backwards = 0;
    for (auto at = members.rbegin(); at != members.rend(); ++at) backwards += present[*at];
    unsigned all = 0;
    for (unsigned number = 0; number < numbers; number++) {
        all += present[number];
        auto at = counts.find(number);
        if ((at == counts.end() ? 0 : at->second) != counted[number]) return false;
    }
    return found == all && backwards == all && members.size() == all;
}

} // namespace

int main()
{
    std::vector<std::thread> all;
    for (unsigned thread = 0; thread < threads; thread++) all.emplace_back(change, thread);
    for (auto &thread : all) thread.join();
    std::printf("%s\n", same() ? "trees and tables are right" : "WRONG");

    std::list<unsigned> more{3, 1, 2};
    unsigned before = order.size();
    order.swap(more);
    order.sort();
    order.reverse();
    order.splice(order.begin(), more);
    std::printf("%s\n", order.size() == before + 3 && order.back() == 1 && more.empty() ? "lists are right" : "WRONG");
    while (!tree.empty()) tree.erase(tree.begin());
    std::printf("%zu\n", tree.size());
}
