// Streams, texts and futures, whose memory other threads have stored: what libstdc++ has ready made in its own library must see all of it.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <future>
#include <iomanip>
#include <iostream>
#include <limits>
#include <locale>
#include <memory>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#define CHECK(what) \
    do { \
        if (!(what)) { \
            std::printf("wrong at line %d: %s\n", __LINE__, #what); \
            std::exit(1); \
        } \
    } while (0)

namespace {

constexpr int threads = 4, rounds = 40;

std::mutex mutex;
std::string text, path;
std::ostringstream together;
std::stringstream back_and_forth;
double number;
char characters[64];

// Runs `work` in one thread after the other, each of which finds what the one before has stored.
template <typename Work> void in_turns(Work work)
{
    for (int i = 0; i < threads; i++)
        std::thread(work, i).join();
}

void standard_streams()
{
    in_turns([](int i) {
        text = "text that the thread number " + std::to_string(i) + " has made, on the heap";
        std::strcpy(characters, "characters of thread ");
        characters[21] = char('0' + i);
        characters[22] = 0;
        number = i * 1.5;
    });
    std::cout << text << "; " << characters << ", " << number << std::endl;
    in_turns([](int i) {
        std::cout << "thread " << i << ": " << text << '\n' << std::setw(6) << i << '|' << std::hex << std::showbase << 250 + i << std::dec
                  << std::noshowbase << '|' << std::setprecision(3) << std::fixed << number << '|' << std::boolalpha << true << '\n';
        std::printf("and printf() after it\n");
        text = std::to_string(i) + text;
    });
    std::cout.write(text.data(), std::streamsize(text.size())) << std::endl;
}

void lines_come_in(std::istream &in)
{
    std::string line;
    std::getline(in, line);
    std::cout << "read: " << line << '\n';
    in_turns([&](int) {
        in >> text >> number;
        std::cout << "read: " << text << " and " << number << '\n';
    });
    in.ignore(1000, '\n');
    in.getline(characters, sizeof characters, ';');
    std::cout << "read: " << characters << ' ' << in.gcount() << '\n';
    in >> std::setw(4) >> characters;
    std::cout << "read: " << characters << ' ' << bool(in) << '\n';
    in.ignore(std::numeric_limits<std::streamsize>::max());
    CHECK(in.eof() && !(in >> text));
}

void texts_of_streams()
{
    std::vector<std::thread> all;
    for (int i = 0; i < threads; i++)
        all.emplace_back([i] {
            for (int round = 0; round < rounds; round++) {
                std::lock_guard<std::mutex> guard(mutex);
                together << i << ',' << std::string(unsigned(i) + 1, 'x') << ',' << round * 0.25 << '\n';
                back_and_forth << round << ' ';
                int other;
                back_and_forth >> other;
                CHECK(other == round);
            }
        });
    for (auto &thread : all)
        thread.join();
    std::istringstream lines(together.str());
    std::string line;
    std::vector<int> next(threads);
    int count = 0;
    while (std::getline(lines, line)) {
        std::replace(line.begin(), line.end(), ',', ' ');
        std::istringstream words(line);
        int i;
        double time;
        std::string xs;
        CHECK(words >> i >> xs >> time);
        CHECK(xs.size() == unsigned(i) + 1 && time == next[unsigned(i)]++ * 0.25);
        count++;
    }
    CHECK(count == threads * rounds);
    std::stringstream moved = std::move(back_and_forth);
    moved.clear();
    moved << 17;
    int seventeen = 0;
    CHECK(moved >> seventeen && seventeen == 17);
}

void files()
{
    {
        std::ofstream out(path);
        CHECK(out.is_open());
        in_turns([&](int i) { out << "line " << i << ' ' << i * 0.5 << '\n'; });
    }
    std::ofstream(path, std::ios::app) << std::string(20000, 'y') << '\n';
    std::ifstream in(path);
    in_turns([&](int i) {
        std::string word;
        int which;
        double half;
        CHECK(in >> word >> which >> half);
        CHECK(word == "line" && which == i && half == i * 0.5);
    });
    CHECK(in >> text && text == std::string(20000, 'y'));
    in.seekg(0);
    std::getline(in, text);
    CHECK(text == "line 0 0" && in.tellg() == 9);
    in.close();
    CHECK(!in.is_open() && !std::ifstream(path + ".none"));
    unlink(path.c_str());
}

void futures()
{
    std::promise<std::string> promise;
    std::future<std::string> future = promise.get_future();
    CHECK(future.wait_for(std::chrono::milliseconds(5)) == std::future_status::timeout);
    std::thread sender([&] { promise.set_value("a text through a promise, long enough for the heap"); });
    CHECK(future.get() == "a text through a promise, long enough for the heap");
    sender.join();
    std::vector<std::future<int>> squares;
    for (int i = 0; i < threads; i++)
        squares.push_back(std::async(std::launch::async, [i] { return i * i; }));
    for (int i = 0; i < threads; i++)
        CHECK(squares[unsigned(i)].get() == i * i);
    std::shared_future<int> shared = std::async(std::launch::deferred, [] { return 5; }).share();
    std::atomic<int> sum{0};
    in_turns([&](int) { sum += shared.get(); });
    CHECK(sum == 5 * threads);
    std::packaged_task<int(int)> task([](int x) { return x + 1; });
    auto result = task.get_future();
    std::thread(std::move(task), 4).detach();
    CHECK(result.get() == 5);
}

void others()
{
    in_turns([](int i) { text = "key" + std::to_string(i) + "=Value; "; });
    std::smatch match;
    CHECK(std::regex_search(text, match, std::regex("(KEY\\d)=([[:alpha:]]+)", std::regex::icase)) && match[1] == "key3" && match[2] == "Value");
    auto counted = std::make_shared<std::function<int(int)>>();
    in_turns([&, counted](int i) { *counted = [i](int x) { return x + i; }; });
    CHECK((*counted)(10) == 13 && counted.use_count() == 1);
    in_turns([](int i) {
        auto end = std::to_chars(characters, characters + sizeof characters, i + 0.125);
        *end.ptr = 0;
    });
    CHECK(!std::strcmp(characters, "3.125"));
    CHECK(std::stod(std::string(characters)) == 3.125 && std::stoi("42") == 42);
    const auto &kinds = std::use_facet<std::ctype<char>>(std::locale());
    in_turns([](int) { std::strcpy(characters, "small letters"); });
    kinds.toupper(characters, characters + 5);
    CHECK(!std::strcmp(characters, "SMALL letters"));
    const auto &order = std::use_facet<std::collate<char>>(std::locale::classic());
    CHECK(order.compare(characters, characters + 5, text.data(), text.data() + 3) < 0);
}

} // namespace

int main()
{
    path = "/tmp/comb-streams." + std::to_string(getpid());
    standard_streams();
    std::istringstream lines("the first line, as a whole\none 1 two 2.5 three -3 four 4e2 rest\nup to here;abcdefg and more");
    lines_come_in(lines);
    texts_of_streams();
    files();
    futures();
    others();
    std::cerr << "";
    std::cout << "all of the streams is right" << std::endl;
}
