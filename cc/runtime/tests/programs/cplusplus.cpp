// C++'s threads, locks, conditions, objects made once, and memory.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            std::printf("wrong at line %d: %s\n", __LINE__, #what); \
            std::exit(1); \
        } \
    } while (0)

namespace {

constexpr int threads = 4, turns = 200;

std::mutex mutex;
std::recursive_mutex recursive;
std::shared_mutex shared;
std::condition_variable condition;
std::once_flag once;
std::atomic<int> counted{0};
int locked, made, onces, destroyed, turn;
std::vector<std::string> names(threads);

struct Made {
    Made() { ++made; }
    int value = 42;
};

const Made &single()
{
    static Made object;
    return object;
}

struct Counted {
    ~Counted() { ++destroyed; }
};

void work(int self, std::vector<int> &sums)
{
    CHECK(single().value == 42);
    std::call_once(once, [] { ++onces; });
    for (int i = 0; i < turns; i++) {
        std::lock_guard<std::mutex> guard(mutex);
        std::lock_guard<std::recursive_mutex> twice(recursive), again(recursive);
        locked++;
    }
    counted += turns;
    {
        std::unique_lock<std::mutex> guard(mutex);
        condition.wait(guard, [&] { return turn == self; });
        names[self] = "thread number " + std::to_string(self) + ", with a name that is long";
        turn++;
        condition.notify_all();
    }
    {
        std::shared_lock<std::shared_mutex> guard(shared);
        sums[self] = self * self;
    }
    try {
        if (self == 1)
            throw std::runtime_error("thrown here");
    } catch (const std::exception &error) {
        CHECK(std::string(error.what()) == "thrown here");
        counted++;
    }
}

} // namespace

int main()
{
    std::vector<int> sums(threads);
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back(work, i, std::ref(sums));
    for (auto &thread : all) {
        CHECK(thread.joinable());
        thread.join();
        CHECK(!thread.joinable());
    }
    CHECK(locked == threads * turns && counted == threads * turns + 1);
    CHECK(made == 1 && onces == 1);
    for (int i = 0; i < threads; i++) {
        CHECK(sums[i] == i * i);
        CHECK(names[i].substr(0, 14) == "thread number " && names[i][14] == '0' + i);
    }
    {
        std::unique_lock<std::mutex> guard(mutex);
        CHECK(condition.wait_for(guard, std::chrono::milliseconds(20)) == std::cv_status::timeout);
    }
    auto pointer = std::make_shared<Counted>();
    std::thread other([pointer] { CHECK(pointer); });
    other.join();
    pointer.reset();
    CHECK(destroyed == 1);
    bool is_refused = false;
    try {
        all[0].join();
    } catch (const std::system_error &) {
        is_refused = true;
    }
    CHECK(is_refused);
    struct alignas(256) Wide {
        char bytes[256];
    };
    auto wide = std::make_unique<Wide[]>(3);
    CHECK(reinterpret_cast<std::uintptr_t>(wide.get()) % 256 == 0);
    CHECK(std::thread::hardware_concurrency() >= 1);
    std::printf("all of C++ is right\n");
}
