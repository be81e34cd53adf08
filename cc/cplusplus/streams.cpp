// Streams, where libstdc++ has them ready made in its own library, as plain code that looks at shared memory unseen. Compiled with the pass, so
// that every access looks. An executable's functions and tables count before a library's of the same name: what is defined here, libstdc++
// itself uses, too.
#include <cstdio>
#include <cstring>
#include <istream>
#include <iostream>
#include <limits>
#include <locale>
#include <ostream>
#include <streambuf>
#include <string>

static_assert(sizeof(std::ios_base) == 216, "classes.c pins that many bytes");

// The tables of the classic locale's facets are these.
template class std::num_put<char>;
template class std::num_get<char>;
template class std::numpunct<char>;
template class std::collate<char>;

namespace {

bool is_that(int character, char wanted) { return character == std::char_traits<char>::to_int_type(wanted); }

// std::cout and its like, on the files of <cstdio>: each is its component's own, and all write to where the program writes. Unbuffered, as
// they are with libstdc++, which lets programs mix them with printf().
class Standard : public std::streambuf {
public:
    explicit Standard(FILE *file) : file(file) {}

protected:
    std::streamsize xsputn(const char *text, std::streamsize bytes) override {
        return std::streamsize(std::fwrite(text, 1, std::size_t(bytes), file));
    }
    int_type overflow(int_type character) override {
        if (traits_type::eq_int_type(character, traits_type::eof()))
            return std::fflush(file) ? traits_type::eof() : traits_type::not_eof(character);
        return std::fputc(character, file);
    }
    int sync() override { return std::fflush(file); }

    std::streamsize xsgetn(char *text, std::streamsize bytes) override {
        std::size_t got = std::fread(text, 1, std::size_t(bytes), file);
        last = got > 0 ? traits_type::to_int_type(text[got - 1]) : traits_type::eof();
        return std::streamsize(got);
    }
    int_type underflow() override { return std::ungetc(std::getc(file), file); }
    int_type uflow() override { return last = std::getc(file); }
    int_type pbackfail(int_type character) override {
        int_type back = traits_type::eq_int_type(character, traits_type::eof()) ? last : character;
        last = traits_type::eof();
        return traits_type::eq_int_type(back, traits_type::eof()) ? back : std::ungetc(back, file);
    }

private:
    FILE *file;
    // What was read last, to be given back.
    int_type last = traits_type::eof();
};

using Status = std::ios_base::iostate;
constexpr int End = std::char_traits<char>::eof();

// What all input functions do around their own work: an exception of the buffer's is the stream's.
template <typename Work> void extract(std::istream &in, bool keeps_space, Work work) {
    Status status = std::ios_base::goodbit;
    std::istream::sentry sentry(in, keeps_space);
    if (sentry) {
        try {
            status = work(*in.rdbuf());
        } catch (...) {
            status = std::ios_base::badbit;
            if (in.exceptions() & status)
                throw;
        }
    }
    if (status != std::ios_base::goodbit)
        in.setstate(status);
}

} // namespace

static_assert(sizeof(Standard) <= 128, "classes.c has so much room for each");

extern "C" void comb_replace_buffers(void *const rooms[]) {
    std::cin.rdbuf(::new (rooms[0]) Standard(stdin));
    std::cout.rdbuf(::new (rooms[1]) Standard(stdout));
    std::cerr.rdbuf(::new (rooms[2]) Standard(stderr));
    std::clog.rdbuf(::new (rooms[3]) Standard(stderr));
}

// std::ctype<char> on ranges of characters, by the names that its table has: two of them are inline, and cannot be defined again.
extern "C" {
const char *comb_widen(const std::ctype<char> *, const char *from, const char *end, char *to) __asm__("_ZNKSt5ctypeIcE8do_widenEPKcS2_Pc");
const char *comb_widen(const std::ctype<char> *, const char *from, const char *end, char *to) {
    std::memmove(to, from, std::size_t(end - from));
    return end;
}

const char *comb_narrow(const std::ctype<char> *, const char *from, const char *end, char, char *to)
    __asm__("_ZNKSt5ctypeIcE9do_narrowEPKcS2_cPc");
const char *comb_narrow(const std::ctype<char> *, const char *from, const char *end, char, char *to) {
    std::memmove(to, from, std::size_t(end - from));
    return end;
}
}

namespace std {

const char *ctype<char>::do_toupper(char *from, const char *end) const {
    for (; from < end; from++)
        *from = toupper(*from);
    return end;
}

const char *ctype<char>::do_tolower(char *from, const char *end) const {
    for (; from < end; from++)
        *from = tolower(*from);
    return end;
}

template <> int collate<char>::_M_compare(const char *one, const char *other) const noexcept {
    int outcome = std::strcoll(one, other);
    return (outcome > 0) - (outcome < 0);
}

template <> size_t collate<char>::_M_transform(char *to, const char *from, size_t room) const noexcept { return std::strxfrm(to, from, room); }

template <> istream &getline(istream &in, string &text, char delimiter) {
    extract(in, true, [&](streambuf &from) {
        text.erase();
        bool found = false;
        int character = from.sgetc();
        while (character != End && !(found = is_that(character, delimiter)) && text.size() < text.max_size()) {
            text += char(character);
            character = from.snextc();
        }
        if (character == End)
            return text.empty() ? ios_base::eofbit | ios_base::failbit : ios_base::eofbit;
        if (!found)
            return ios_base::failbit;
        from.sbumpc();
        return ios_base::goodbit;
    });
    return in;
}

template <> istream &operator>>(istream &in, string &text) {
    extract(in, false, [&](streambuf &from) {
        text.erase();
        const auto &kinds = use_facet<ctype<char>>(in.getloc());
        size_t most = in.width() > 0 ? size_t(in.width()) : text.max_size();
        in.width(0);
        int character = from.sgetc();
        while (text.size() < most && character != End && !kinds.is(ctype_base::space, char(character))) {
            text += char(character);
            character = from.snextc();
        }
        Status status = text.empty() ? ios_base::failbit : ios_base::goodbit;
        return text.size() < most && character == End ? status | ios_base::eofbit : status;
    });
    return in;
}

void __istream_extract(istream &in, char *text, streamsize room) {
    extract(in, false, [&](streambuf &from) {
        const auto &kinds = use_facet<ctype<char>>(in.getloc());
        streamsize most = in.width() > 0 && in.width() < room ? in.width() : room, count = 0;
        in.width(0);
        int character = from.sgetc();
        while (count + 1 < most && character != End && !kinds.is(ctype_base::space, char(character))) {
            text[count++] = char(character);
            character = from.snextc();
        }
        text[count] = 0;
        Status status = count == 0 ? ios_base::failbit : ios_base::goodbit;
        return count + 1 < most && character == End ? status | ios_base::eofbit : status;
    });
}

template <> istream &istream::getline(char *text, streamsize room, char delimiter) {
    _M_gcount = 0;
    char *to = text;
    if (room > 0)
        *to = 0;
    Status nothing = ios_base::failbit;
    extract(*this, true, [&](streambuf &from) {
        nothing = ios_base::goodbit;
        int character = from.sgetc();
        while (_M_gcount + 1 < room && character != End && !is_that(character, delimiter)) {
            *to++ = char(character);
            _M_gcount++;
            character = from.snextc();
        }
        if (room > 0)
            *to = 0;
        Status status = ios_base::goodbit;
        if (character == End)
            status |= ios_base::eofbit;
        else if (is_that(character, delimiter))
            from.sbumpc(), _M_gcount++;
        else
            status |= ios_base::failbit;
        return _M_gcount ? status : status | ios_base::failbit;
    });
    if (nothing)
        setstate(nothing);
    return *this;
}

template <> istream &istream::ignore(streamsize count, int_type delimiter) {
    _M_gcount = 0;
    extract(*this, true, [&](streambuf &from) {
        bool is_endless = count == numeric_limits<streamsize>::max();
        while (is_endless || _M_gcount < count) {
            int character = from.sbumpc();
            if (character == End)
                return ios_base::eofbit;
            if (_M_gcount < count)
                _M_gcount++;
            if (character == delimiter)
                break;
        }
        return ios_base::goodbit;
    });
    return *this;
}

template <> istream &istream::ignore(streamsize count) { return ignore(count, End); }

} // namespace std
