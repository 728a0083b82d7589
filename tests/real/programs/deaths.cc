// Ways in which the C++ runtime ends a process.
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

#define DEATH extern "C" __attribute__((noinline, visibility("default"))) void

static void must_not_throw() noexcept { throw std::runtime_error("shard 3 is empty"); }
DEATH left_noexcept() { must_not_throw(); }

DEATH forgotten_thread()
{
    std::thread reader([] {});
}

namespace
{
struct Base {
    Base() { prepare(); }
    virtual ~Base() = default;
    virtual void open() = 0;
    __attribute__((noinline)) void prepare() { open(); }
};
struct Reader : Base {
    void open() override {}
};
} // namespace
DEATH pure_virtual_call() { Reader reader; }

DEATH abort_in_handler()
{
    try {
        throw std::runtime_error("handled");
    } catch (const std::exception &) {
        std::abort();
    }
}

DEATH fault_in_handler()
{
    try {
        throw std::runtime_error("handled");
    } catch (const std::exception &) {
        *reinterpret_cast<volatile int *>(8) = 1;
    }
}
