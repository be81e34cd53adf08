// Exceptions stay with their component: one that is caught where it was thrown, or rethrown there, is as on one machine. One that would go elsewhere
// is told of (the program that is asked for by a word ends there).
#include <cstdio>
#include <exception>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>

static int caught(int thread) {
    std::exception_ptr kept;
    try {
        throw std::runtime_error("of thread " + std::to_string(thread));
    } catch (...) {
        kept = std::current_exception();
    }
    std::exception_ptr copy = kept;
    try {
        std::rethrow_exception(copy);
    } catch (const std::exception &exception) {
        return exception.what() == "of thread " + std::to_string(thread);
    }
}

int main() {
    int sum = 0;
    for (int thread = 0; thread < 4; thread++)
        sum += std::async(std::launch::async, caught, thread).get();
    std::printf("%d\n", sum);
}
