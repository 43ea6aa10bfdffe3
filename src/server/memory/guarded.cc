#include "server/memory/guarded.h"

#include <signal.h>
#include <ucontext.h>

#include <mutex>

namespace farside::server {

thread_local sigjmp_buf* guard_of_thread = nullptr;

namespace {

struct sigaction g_before = {};

void on_sigbus(int signal, siginfo_t* info, void* context) {
  if (guard_of_thread) {
    // The jump leaves the mask as it is.
    pthread_sigmask(SIG_SETMASK, &static_cast<ucontext_t*>(context)->uc_sigmask, nullptr);
    siglongjmp(*guard_of_thread, 1);
  }
  if (g_before.sa_flags & SA_SIGINFO) return g_before.sa_sigaction(signal, info, context);
  if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) return g_before.sa_handler(signal);
  sigaction(SIGBUS, &g_before, nullptr);  // the access is repeated, and ends the process
}

}  // namespace

void install_guard() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action = {};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, nullptr, &g_before);
    sigaction(SIGBUS, &action, nullptr);
  });
}

}  // namespace farside::server
