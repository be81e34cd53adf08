// Exceptions through frames with shared objects, virtual functions, templates, statics, lambdas, containers.
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

struct Shape {
    virtual ~Shape() { alive--; }
    virtual double area() const = 0;
    static int alive;
};
int Shape::alive = 0;

struct Square : Shape {
    double side;
    explicit Square(double s) : side(s) { alive++; }
    double area() const override { return side * side; }
};

struct Circle : Shape {
    double radius;
    explicit Circle(double r) : radius(r) { alive++; }
    double area() const override { return 3 * radius * radius; }
};

struct Failure {
    int code;
};

static int *escaped;
__attribute__((noinline)) static void keep(int *p) { escaped = p; }

struct Guard {
    int value;
    ~Guard() { *escaped += value; }
};

__attribute__((noinline)) static int fall(int depth) {
    int own[4] = {depth, 1, 2, 3};
    keep(own);
    Guard guard{depth};
    if (depth == 0)
        throw Failure{*escaped + 5};
    return fall(depth - 1) + own[1];
}

template <typename T> T &counter() {
    static T value = T(1);
    return value;
}

__attribute__((noinline)) static long catches(int turns) {
    long total = 0;
    for (int i = 0; i < turns; i++) {
        int own = i;
        keep(&own);
        try {
            total += fall(i % 7);
        } catch (const Failure &failure) {
            total += failure.code + own;
        }
    }
    return total;
}

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    double area = 0;
    long total = 0;
    for (int i = 0; i < 300; i++) {
        if (i % 2)
            shapes.push_back(std::make_unique<Square>(i));
        else
            shapes.push_back(std::make_unique<Circle>(i * 0.5));
    }
    for (auto &shape : shapes)
        area += shape->area();
    total += Shape::alive;
    shapes.clear();
    total += Shape::alive + catches(2000);
    std::vector<int> numbers;
    for (int i = 0; i < 3000; i++)
        numbers.push_back(i * 7 % 1001);
    auto add = [&](int k) { total += numbers[size_t(k)] + counter<long>()++ + long(counter<double>() += 0.5); };
    for (int i = 0; i < 3000; i++)
        add(i);
    try {
        numbers.at(5000) = 1;
    } catch (const std::exception &) {
        total += 17;
    }
    std::printf("%ld %f\n", total, area);
    return 0;
}
