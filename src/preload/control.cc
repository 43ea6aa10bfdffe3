#include "preload/control.h"

#include <sys/mman.h>

#include <cstring>

#include "abi/control.h"
#include "base/clock.h"
#include "base/inherited_fds.h"
#include "base/log.h"
#include "base/os.h"
#include "pager/pager.h"

namespace farside::preload {
namespace {

struct Control {
  pager::Pager* pager = nullptr;
  WriteReport report = nullptr;
  int fd = -1;
  ControlPage* page = nullptr;
  bool samples = false;  // for `farside plan -p`
};
Control g_control;

void make_page() {
  int fd = os::sealed_memfd(kControlName, ControlPage::kBytes);
  if (fd < 0) return;
  fd = os::move_fd_high(fd);
  long address = os::mmap(nullptr, ControlPage::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (os::is_error(address)) {
    os::close(fd);
    return;
  }
  g_control.fd = fd;
  g_control.page = reinterpret_cast<ControlPage*>(address);
  g_control.page->magic = ControlPage::kMagic;
}

// `farside ctl` writes the page from another process: its values are checked.
bool is_sensible(const SizeOrShare& local) {
  constexpr uint64_t kMin = pager::Budget::kMinPages * kPageSize;
  if (local.is_automatic()) return local.bytes == 0 || (local.least >= kMin && local.bytes >= local.least);
  if (local.share != 0) return local.bytes == 0 && local.share > 0 && local.share <= 1;
  return local.bytes >= kMin;
}

// A run of `farside plan` has samples of its own. What cannot begin is not tried again while it is wanted.
void serve_sampling(const ControlPage& page) {
  uint64_t now = now_ns(), until = page.sample_until_ns.load(std::memory_order_relaxed);
  bool wanted = until > now && until - now <= ControlPage::kMaxSampleNs;
  pager::Pager& pager = *g_control.pager;
  if (wanted == g_control.samples || (wanted && pager.is_sampling())) return;
  g_control.samples = wanted;
  if (!wanted) return pager.stop_sampling();
  Status begun = pager.sample("");
  if (!begun.ok()) log(LogLevel::kWarning, "{}", begun.text());
}

}  // namespace

void open_control(pager::Pager* pager, WriteReport report) {
  g_control.pager = pager;
  g_control.report = report;
  make_page();
}

// What the parent was asked for, and has not done yet, would be lost.
void reopen_control_in_child() {
  if (!g_control.page) return;
  if (g_control.samples) g_control.pager->stop_sampling();
  g_control.samples = false;
  const ControlPage& parent = *g_control.page;
  bool is_pending = parent.asked.load(std::memory_order_acquire) != parent.answered.load(std::memory_order_relaxed);
  SizeOrShare local = is_pending ? parent.local() : SizeOrShare{};
  os::munmap(g_control.page, ControlPage::kBytes);
  close_inherited(g_control.fd);
  g_control.page = nullptr;
  g_control.fd = -1;
  make_page();
  if (g_control.page && is_pending) g_control.page->request(local);
}

void serve_control() {
  ControlPage* page = g_control.page;
  if (!page) return;
  page->served.store(1, std::memory_order_relaxed);
  serve_sampling(*page);
  uint32_t asked = page->asked.load(std::memory_order_acquire);
  if (asked == page->answered.load(std::memory_order_relaxed)) return;
  SizeOrShare local = page->local();
  if (is_sensible(local)) g_control.pager->evictors().set_local(local);
  page->set_local({});  // for requests of others
  char line[sizeof page->report];
  size_t bytes = g_control.report(line, sizeof line - 1);
  line[bytes] = 0;
  memcpy(page->report, line, bytes + 1);
  page->answered.store(asked, std::memory_order_release);
}

bool owns_control_fd(int fd) { return fd >= 0 && fd == g_control.fd; }

}  // namespace farside::preload
