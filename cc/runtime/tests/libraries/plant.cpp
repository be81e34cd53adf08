// Of programs/plant.cpp: a library whose variables are constructed when it is loaded.
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct Root {
    virtual ~Root() = default;
    virtual std::string name() const { return "a root whose name is too long to stand in the object"; }
};

static std::vector<std::string> leaves{"the first leaf, which was there before all others"};
static std::unique_ptr<Root> root = std::make_unique<Root>();
static std::mutex lock;

unsigned long grow(const std::string &leaf) {
    std::lock_guard<std::mutex> held(lock);
    leaves.push_back(leaf);
    return leaves.size();
}

std::string describe() { return leaves.front() + ", " + root->name(); }
