// Guarded system calls on times, processes and System V IPC.
#include <linux/capability.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "preload/call_test_support.h"

namespace farside::preload {
namespace {

const std::vector<Case> kTimeCases = {
    {"clock_gettime",
     [](Place& p, Outcome& o) {
       auto* t = p.put<timespec>({0, -1});
       o.add(p.call(SYS_clock_gettime, CLOCK_MONOTONIC, t));
       o.add(t->tv_nsec >= 0);
     }},
    {"gettimeofday",
     [](Place& p, Outcome& o) {
       auto* t = p.put<timeval>({0, 0});
       auto* zone = p.put<uint64_t>(0);
       o.add(p.call(SYS_gettimeofday, t, zone));
       o.add(t->tv_sec > 0);
     }},
    {"nanosleep",
     [](Place& p, Outcome& o) {
       o.add(p.call(SYS_nanosleep, p.put<timespec>({0, 1}), p.put<timespec>({})));
     }},
    {"clock_nanosleep",
     [](Place& p, Outcome& o) {
       o.add(p.call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, p.put<timespec>({0, 1}), p.put<timespec>({})));
     }},
    {"timerfd",
     [](Place& p, Outcome& o) {
       int fd = ::timerfd_create(CLOCK_MONOTONIC, 0);
       o.add(p.call(SYS_timerfd_settime, fd, 0, p.put<itimerspec>({{}, {1000, 0}}), p.put<itimerspec>({})));
       auto* now = p.put<itimerspec>({});
       o.add(p.call(SYS_timerfd_gettime, fd, now));
       o.add(now->it_value.tv_sec > 900);
       os::close(fd);
     }},
    {"itimer",
     [](Place& p, Outcome& o) {
       o.add(p.call(SYS_setitimer, ITIMER_REAL, p.put<itimerval>({{}, {1000, 0}}), p.put<itimerval>({})));
       auto* now = p.put<itimerval>({});
       o.add(p.call(SYS_getitimer, ITIMER_REAL, now));
       o.add(now->it_value.tv_sec > 900);
       o.add(p.call(SYS_setitimer, ITIMER_REAL, p.put<itimerval>({}), 0));
     }},
    {"timer",
     [](Place& p, Outcome& o) {
       sigevent event = {};
       event.sigev_notify = SIGEV_NONE;
       auto* id = p.put<int>(-1);
       o.add(p.call(SYS_timer_create, CLOCK_MONOTONIC, p.put(event), id));
       o.add(*id >= 0);
       o.add(p.call(SYS_timer_settime, *id, 0, p.put<itimerspec>({{}, {1000, 0}}), p.put<itimerspec>({})));
       auto* now = p.put<itimerspec>({});
       o.add(p.call(SYS_timer_gettime, *id, now));
       o.add(now->it_value.tv_sec > 900);
       os::call(SYS_timer_delete, *id);
     }},
    {"times",
     [](Place& p, Outcome& o) {
       auto* t = p.put<tms>({-1, -1, -1, -1});
       o.add(p.call(SYS_times, t) > 0);
       o.add(t->tms_utime >= 0);
     }},
};

const std::vector<Case> kProcessCases = {
    {"wait4",
     [](Place& p, Outcome& o) {
       long pid = ended_child();
       auto* status = p.put<int>(-1);
       auto* usage = p.put<rusage>({});
       o.add(p.call(SYS_wait4, pid, status, 0, usage) == pid);
       o.add(*status);
       o.add(usage->ru_maxrss > 0);
     }},
    {"waitid",
     [](Place& p, Outcome& o) {
       long pid = ended_child();
       auto* info = p.put<siginfo_t>({});
       auto* usage = p.put<rusage>({});
       o.add(p.call(SYS_waitid, P_PID, pid, info, WEXITED, usage));
       o.add(info->si_status);
       o.add(usage->ru_maxrss > 0);
     }},
    {"getrusage",
     [](Place& p, Outcome& o) {
       auto* usage = p.put<rusage>({});
       o.add(p.call(SYS_getrusage, RUSAGE_SELF, usage));
       o.add(usage->ru_maxrss > 0);
     }},
    {"limits",
     [](Place& p, Outcome& o) {
       auto *old = p.put<rlimit>({}), *now = p.put<rlimit>({});
       o.add(p.call(SYS_getrlimit, RLIMIT_NOFILE, now));
       o.add(p.call(SYS_prlimit64, 0, RLIMIT_NOFILE, p.put(*now), old));
       o.add(old, sizeof *old);
       o.add(p.call(SYS_setrlimit, RLIMIT_NOFILE, p.put(*now)));
     }},
    {"ids",
     [](Place& p, Outcome& o) {
       auto *a = p.put<uid_t>(99), *b = p.put<uid_t>(99), *c = p.put<uid_t>(99);
       o.add(p.call(SYS_getresuid, a, b, c));
       o.add(*a);
       o.add(*c);
       auto* groups = p.room(65536 * 4);
       long count = p.call(SYS_getgroups, 65536, groups);
       o.add(count);
       if (count > 0) o.add(groups, static_cast<size_t>(count) * 4);
     }},
    {"capget",
     [](Place& p, Outcome& o) {
       struct Data {
         __user_cap_data_struct data[2];
       };
       auto* header = p.put<__user_cap_header_struct>({_LINUX_CAPABILITY_VERSION_3, 0});
       auto* data = p.put<Data>({});
       o.add(p.call(SYS_capget, header, data));
       o.add(data, sizeof *data);
     }},
    {"scheduling",
     [](Place& p, Outcome& o) {
       auto* set = p.room(1024);
       long r = p.call(SYS_sched_getaffinity, 0, 1024, set);
       o.add(r);
       o.add(set, 128);
       o.add(p.call(SYS_sched_setaffinity, 0, 128, set));
       auto* param = p.put<sched_param>({-1});
       o.add(p.call(SYS_sched_getparam, 0, param));
       o.add(param->sched_priority);
       o.add(p.call(SYS_sched_setscheduler, 0, SCHED_OTHER, param));
       auto* attributes = p.room(56);
       o.add(p.call(SYS_sched_getattr, 0, attributes, 56, 0));
       auto* interval = p.put<timespec>({-1, -1});
       o.add(p.call(SYS_sched_rr_get_interval, 0, interval));
       o.add(interval->tv_sec);
     }},
    {"getcpu",
     [](Place& p, Outcome& o) {
       auto *cpu = p.put<unsigned>(~0u), *node = p.put<unsigned>(~0u);
       o.add(p.call(SYS_getcpu, cpu, node, 0));
       o.add(*cpu < 4096);
       o.add(*node < 4096);
     }},
    {"signals",
     [](Place& p, Outcome& o) {
       auto* pending = p.put<uint64_t>(1);
       o.add(p.call(SYS_rt_sigpending, pending, 8));
       o.add(static_cast<long>(*pending));
       auto* info = p.put<siginfo_t>({});
       o.add(p.call(SYS_rt_sigtimedwait, p.put<uint64_t>(os::signal_bit(SIGURG)), info, p.put<timespec>({0, 0}), 8));
       siginfo_t sent = {};
       sent.si_signo = SIGURG;  // ignored by default
       sent.si_code = -1;
       o.add(p.call(SYS_rt_sigqueueinfo, getpid(), SIGURG, p.put(sent)));
     }},
    {"uname",
     [](Place& p, Outcome& o) {
       auto* name = p.put<utsname>({});
       o.add(p.call(SYS_uname, name));
       o.add(name, sizeof *name);
     }},
    {"sysinfo",
     [](Place& p, Outcome& o) {
       auto* info = p.put<struct sysinfo>({});
       o.add(p.call(SYS_sysinfo, info));
       o.add(static_cast<long>(info->totalram / 1024));
     }},
    {"getrandom",
     [](Place& p, Outcome& o) {
       auto* to = p.room(200);
       o.add(p.call(SYS_getrandom, to, 200, 0));
     }},
    {"futex",
     [](Place& p, Outcome& o) {
       auto* word = p.put<uint32_t>(5);
       word = reinterpret_cast<uint32_t*>(align_up(reinterpret_cast<uint64_t>(word), 4));
       *word = 5;
       o.add(p.call(SYS_futex, word, FUTEX_WAKE, 1, 0, 0, 0));
       o.add(p.call(SYS_futex, word, FUTEX_WAIT, 6, 0, 0, 0));
       o.add(p.call(SYS_futex, word, FUTEX_WAIT, 5, p.put<timespec>({0, 1000}), 0, 0));
     }},
};

struct Message {
  long type;
  char text[100];
};
void messages(Place& p, Outcome& o) {
  int queue = ::msgget(IPC_PRIVATE, 0600);
  Message message = {3, "hello"};
  o.add(p.call(SYS_msgsnd, queue, p.put(message), 100, 0));
  o.add(p.call(SYS_msgsnd, queue, p.put<long>(4), 0, 0));  // a type alone
  auto* got = p.put<Message>({});
  o.add(p.call(SYS_msgrcv, queue, got, 100, 3, IPC_NOWAIT));
  o.add(got, sizeof *got);
  auto* empty = p.put<long>(0);
  o.add(p.call(SYS_msgrcv, queue, empty, 0, 0, IPC_NOWAIT));
  o.add(*empty);
  auto* state = p.put<msqid_ds>({});
  o.add(p.call(SYS_msgctl, queue, IPC_STAT, state));
  o.add(static_cast<long>(state->msg_qnum));
  ::msgctl(queue, IPC_RMID, nullptr);
}

void semaphores(Place& p, Outcome& o) {
  int set = ::semget(IPC_PRIVATE, 2, 0600);
  struct Steps {
    sembuf step[2];
  };
  o.add(p.call(SYS_semop, set, p.put<Steps>({{{0, 2, 0}, {1, 1, 0}}}), 2));
  o.add(p.call(SYS_semtimedop, set, p.put<Steps>({{{0, -1, 0}, {1, -1, 0}}}), 2, p.put<timespec>({0, 1})));
  o.add(::semctl(set, 0, GETVAL));
  ::semctl(set, 0, IPC_RMID);
}

void shared_memory(Place& p, Outcome& o) {
  int id = ::shmget(IPC_PRIVATE, 5000, 0600);
  auto* state = p.put<shmid_ds>({});
  o.add(p.call(SYS_shmctl, id, IPC_STAT, state));
  o.add(static_cast<long>(state->shm_segsz));
  ::shmctl(id, IPC_RMID, nullptr);
}

void queues(Place& p, Outcome& o) {
  std::string name = "farside-guard-" + std::to_string(getpid());  // the system call takes the name without a slash
  mq_attr attributes = {};
  attributes.mq_maxmsg = 2;
  attributes.mq_msgsize = 100;
  long queue = p.call(SYS_mq_open, p.text(name), O_CREAT | O_RDWR | O_NONBLOCK, 0600, p.put(attributes));
  o.add(queue < 0 ? queue : 0);
  if (queue < 0) return;
  o.add(p.call(SYS_mq_timedsend, queue, p.text("hello"), 5, 7, p.put<timespec>({0, 0})));
  auto* to = p.room(100);
  auto* priority = p.put<unsigned>(0);
  o.add(p.call(SYS_mq_timedreceive, queue, to, 100, priority, p.put<timespec>({0, 0})));
  o.add(to, 5);
  o.add(*priority);
  auto* now = p.put<mq_attr>({});
  o.add(p.call(SYS_mq_getsetattr, queue, 0, now));
  o.add(now->mq_msgsize);
  o.add(p.call(SYS_mq_unlink, p.text(name)));
  os::close(static_cast<int>(queue));
}

const std::vector<Case> kIpcCases = {
    {"messages", messages}, {"semaphores", semaphores}, {"shared_memory", shared_memory}, {"message_queues", queues}};

TEST_CALLS(Time, kTimeCases);
TEST_CALLS(Process, kProcessCases);
TEST_CALLS(Ipc, kIpcCases);

}  // namespace
}  // namespace farside::preload
