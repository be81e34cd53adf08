#include <cstdio>
#include <string>
#include <thread>
#include <vector>

long count(const std::string &name);

int main() {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 4; thread++)
        threads.emplace_back([] {
            for (int time = 0; time < 100; time++) count("all");
        });
    for (std::thread &thread : threads) thread.join();
    long sum = 0;
#pragma omp parallel for reduction(+ : sum)
    for (int number = 0; number < 100; number++) sum += number;
    std::printf("%ld %ld\n", count("all"), sum);
}
