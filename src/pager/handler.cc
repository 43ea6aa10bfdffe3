#include "pager/handler.h"

#include <fcntl.h>

#include "base/log.h"

namespace farside::pager {
namespace {
constexpr unsigned kBurst = 16;  // messages read by one system call
}

Status FaultHandler::start() {
  if (int error = os::pipe(stop_pipe_, O_CLOEXEC))
    return Status::error(-error, "cannot open a pipe (error {}); raise 'ulimit -n'", -error);
  for (int& fd : stop_pipe_) fd = os::move_fd_high(fd);
  int error = thread_.start([](void* self) { static_cast<FaultHandler*>(self)->run(); }, this);
  if (error)
    return Status::error(-error, "cannot start the fault handler thread (error {}); raise 'ulimit -u'", -error);
  running_ = true;
  return {};
}

void FaultHandler::stop() {
  if (!running_) return;
  os::close(stop_pipe_[1]);
  thread_.join();
  os::close(stop_pipe_[0]);
  running_ = false;
}

void FaultHandler::run() {
  os::name_thread("farside-fault");
  uffd_msg messages[kBurst];
  for (;;) {
    pollfd fds[2] = {{pager_.space().uffd(), POLLIN, 0}, {stop_pipe_[0], POLLIN, 0}};
    if (os::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents) return;
    ssize_t bytes = os::read(pager_.space().uffd(), messages, sizeof messages);
    if (bytes == -EBADF)
      die("the program closed descriptors of Farside by direct system calls, so its far memory is lost. Run it with "
          "--fault=signal");
    for (size_t i = 0; bytes > 0 && i < static_cast<size_t>(bytes) / sizeof(uffd_msg); i++) serve(messages[i]);
  }
}

void FaultHandler::serve(const uffd_msg& message) {
  if (message.event != UFFD_EVENT_PAGEFAULT) return;
  uint64_t address = message.arg.pagefault.address;
  bool write = (message.arg.pagefault.flags & (UFFD_PAGEFAULT_FLAG_WRITE | UFFD_PAGEFAULT_FLAG_WP)) != 0;
  if (pager_.paging().fault(address, write) == FaultOutcome::kNotMapped) pager_.addresses().guard_page(address);
  // Mapping a page wakes the threads that wait for it. This wakes those whose page was present already.
  PageTable& table = pager_.table();
  pager_.space().wake(table.address_of(table.index_of(address)), kPageSize);
}

}  // namespace farside::pager
