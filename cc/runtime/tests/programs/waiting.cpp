// What C++20 has its headers wait for by themselves, hashes of strings, and thread-local objects that end with their thread.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <latch>
#include <random>
#include <semaphore>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

static constexpr int Threads = 4;
static std::atomic<int> word{0};
static std::atomic<int> ended{0};
static std::latch ready{Threads};
static std::counting_semaphore<Threads> places{0};
static std::barrier<> meeting{Threads};
static std::unordered_map<std::string, int> numbers;
static std::atomic<int> sums[Threads];

struct Ending {
    std::string name = "a name that is too long to stand in the object itself";
    ~Ending() { ended += static_cast<int>(name.size()) > 40; }
};
static thread_local Ending ending;

static void work(int thread) {
    ending.name += '!';
    ready.count_down();
    word.wait(0);
    places.acquire();
    int sum = 0;
    for (int round = 0; round < 20; round++) {
        sums[thread] = round;
        meeting.arrive_and_wait();
        for (std::atomic<int> &other : sums) sum += other;
        meeting.arrive_and_wait();
    }
    sums[thread] = sum + numbers.at("number " + std::to_string(thread));
}

int main() {
    for (int number = 0; number < Threads; number++) numbers["number " + std::to_string(number)] = number;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < Threads; thread++) threads.emplace_back(work, thread);
    ready.wait();
    // Somebody sleeps there by now, most of the time.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    word = 1;
    word.notify_all();
    places.release(Threads);
    for (std::thread &thread : threads) thread.join();
    for (std::atomic<int> &sum : sums) std::printf("%d\n", sum.load());
    std::printf("%d ended\n", ended.load());
    std::printf("%s\n", places.try_acquire_for(std::chrono::milliseconds(10)) ? "a place" : "no place");
    std::random_device random;
    unsigned any = 0;
    for (int time = 0; time < 8; time++) any |= random();
    std::puts(any ? "random" : "zeros");
}
