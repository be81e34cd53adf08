#include <map>
#include <mutex>
#include <string>

static std::map<std::string, long> counts;
static std::mutex lock;

long count(const std::string &name) {
    std::lock_guard<std::mutex> held(lock);
    return ++counts[name];
}
