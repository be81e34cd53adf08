// A shared library whose constructors allocate: they run once, before main(), wherever its functions are called then.
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

unsigned long grow(const std::string &leaf);
std::string describe();

int main() {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++)
        threads.emplace_back([thread] {
            for (int leaf = 0; leaf < 25; leaf++) grow("leaf " + std::to_string(leaf) + " of thread " + std::to_string(thread));
        });
    for (std::thread &thread : threads) thread.join();
    std::printf("%lu leaves; %s\n", grow("the last"), describe().c_str());
}
