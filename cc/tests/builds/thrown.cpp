// An exception that a future takes to main(): on several components, from one to another.
#include <cstdio>
#include <exception>
#include <future>
#include <stdexcept>

int main() {
    for (int time = 0; time < 2; time++) {
        auto future = std::async(std::launch::async, []() -> int { throw std::runtime_error("away"); });
        try {
            future.get();
        } catch (const std::exception &exception) {
            std::printf("caught %s\n", exception.what());
        }
    }
}
