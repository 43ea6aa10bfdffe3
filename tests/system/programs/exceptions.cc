// Allocations of C++ that fail: the program's new handler, its exceptions, and the number of those in flight. Prints
// what it sees. With an argument: in a library that is opened with RTLD_LOCAL, by a program of C.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

volatile size_t huge = size_t{1} << 62;
int calls = 0;
void* volatile sink;  // so that no allocation is optimized away

struct Guard {
  int before = std::uncaught_exceptions();
  ~Guard() { printf("%s, ", std::uncaught_exceptions() > before ? "rolled back" : "committed"); }
};

template <typename Allocate>
void fails(const char* what, Allocate allocate) {
  printf("%s: ", what);
  try {
    Guard guard;
    allocate();
  } catch (const std::exception& e) {
    printf("%s, ", e.what());
  }
  printf("%d calls, %d in flight\n", calls, std::uncaught_exceptions());
}

void allocate_all() {
  struct alignas(128) Wide {
    char bytes[128];
  };
  fails("new", [] { sink = operator new(huge); });
  fails("new array", [] { sink = new char[huge]; });
  fails("aligned new", [] { sink = new (std::align_val_t(4096)) char[huge]; });
  fails("string", [] { std::string().reserve(huge); });
  fails("vector", [] { std::vector<Wide>().resize(huge >> 8); });
  fails("nothrow", [] { printf("%d, ", (new (std::nothrow) char[huge]) == nullptr); });
  fails("nothrow aligned", [] { printf("%d, ", (new (std::align_val_t(64), std::nothrow) char[huge]) == nullptr); });
}

}  // namespace

extern "C" void allocate_and_fail() {
  allocate_all();
  std::set_new_handler([] {
    if (++calls % 3 == 0) std::set_new_handler(nullptr);
  });
  fails("handler removes itself", [] { sink = new char[huge]; });
  std::set_new_handler([] { throw std::bad_alloc(); });
  allocate_all();
  static std::vector<char*> reserve;
  for (int i = 0; i < 20; i++) reserve.push_back(new char[100000]);
  static char* spare = new char[100];
  std::set_new_handler([] { delete[] std::exchange(spare, nullptr), std::set_new_handler(nullptr); });
  fails("handler frees", [] { sink = new char[huge]; });
  for (char* block : reserve) delete[] block;
}

int main() { allocate_and_fail(); }
