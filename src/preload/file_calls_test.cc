// Guarded system calls on files, directories, sockets and descriptors.
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <net/if.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "preload/call_test_support.h"

namespace farside::preload {
namespace {

const std::vector<Case> kFileCases = {
    {"openat",
     [](Place& p, Outcome& o) { add_fd(o, p.call(SYS_openat, AT_FDCWD, p.text("/proc/self/exe"), O_RDONLY, 0)); }},
    {"openat2",
     [](Place& p, Outcome& o) {
       open_how how = {};
       how.flags = O_RDONLY;
       auto* text = p.text("/dev/null");
       add_fd(o, p.call(SYS_openat2, AT_FDCWD, text, p.put(how), sizeof how));
     }},
    {"newfstatat",
     [](Place& p, Outcome& o) {
       auto* s = p.put<struct stat>({});
       o.add(p.call(SYS_newfstatat, AT_FDCWD, p.text("/dev/null"), s, 0));
       o.add(s->st_mode);
       o.add(static_cast<long>(s->st_ino));
     }},
    {"fstat",
     [](Place& p, Outcome& o) {
       int fd = temporary_file("12345");
       auto* s = p.put<struct stat>({});
       o.add(p.call(SYS_fstat, fd, s));
       o.add(s->st_size);
       os::close(fd);
     }},
    {"statx",
     [](Place& p, Outcome& o) {
       auto* s = p.put<struct statx>({});
       o.add(p.call(SYS_statx, AT_FDCWD, p.text("/dev/null"), 0, STATX_BASIC_STATS, s));
       o.add(s->stx_mode);
     }},
    {"statfs",
     [](Place& p, Outcome& o) {
       auto* s = p.put<struct statfs>({});
       o.add(p.call(SYS_statfs, p.text("/proc"), s));
       o.add(s->f_type);
     }},
    {"faccessat", [](Place& p, Outcome& o) { o.add(p.call(SYS_faccessat, AT_FDCWD, p.text("/no/such/file"), F_OK)); }},
    {"readlinkat",
     [](Place& p, Outcome& o) {
       auto* to = p.room(300);
       long r = p.call(SYS_readlinkat, AT_FDCWD, p.text("/proc/self/exe"), to, 300);
       o.add(r);
       if (r > 0) o.add(to, static_cast<size_t>(r));
     }},
    {"getcwd",
     [](Place& p, Outcome& o) {
       auto* to = p.room(5000);
       o.add(p.call(SYS_getcwd, to, 5000));
       o.add(to, strlen(to));
     }},
    {"getdents64",
     [](Place& p, Outcome& o) {
       int fd = os::open("/proc/self/ns", O_RDONLY | O_DIRECTORY);
       auto* to = p.room(6000);
       long r = p.call(SYS_getdents64, fd, to, 6000);
       o.add(r);
       if (r > 0) o.add(to, static_cast<size_t>(r));
       os::close(fd);
     }},
    {"names",
     [](Place& p, Outcome& o) {
       std::string a = temporary_path(), b = temporary_path(), c = temporary_path();
       o.add(p.call(SYS_mkdirat, AT_FDCWD, p.text(a), 0700));
       o.add(p.call(SYS_renameat2, AT_FDCWD, p.text(a), AT_FDCWD, p.text(b), 0));
       o.add(p.call(SYS_symlinkat, p.text(b), AT_FDCWD, p.text(c)));
       timespec times[2] = {{5, 0}, {6, 0}};
       o.add(p.call(SYS_utimensat, AT_FDCWD, p.text(b), p.put(times), 0));
       struct stat s = {};
       ::stat(b.c_str(), &s);
       o.add(s.st_mtim.tv_sec);
       o.add(p.call(SYS_fchmodat, AT_FDCWD, p.text(b), 0500));
       o.add(p.call(SYS_unlinkat, AT_FDCWD, p.text(c), 0));
       o.add(p.call(SYS_unlinkat, AT_FDCWD, p.text(b), AT_REMOVEDIR));
     }},
    {"xattr",
     [](Place& p, Outcome& o) {
       std::string path = temporary_path();
       os::close(os::open(path.c_str(), O_CREAT | O_RDWR, 0600));
       auto* value = p.text("a value");
       o.add(p.call(SYS_setxattr, p.text(path), p.text("user.farside"), value, 7, 0));
       auto* to = p.room(100);
       long r = p.call(SYS_getxattr, p.text(path), p.text("user.farside"), to, 100);
       o.add(r);
       if (r > 0) o.add(to, static_cast<size_t>(r));
       auto* names = p.room(1000);
       o.add(p.call(SYS_listxattr, p.text(path), names, 1000));
       ::unlink(path.c_str());
     }},
    {"memfd_create", [](Place& p, Outcome& o) { add_fd(o, p.call(SYS_memfd_create, p.text("a name"), 0)); }},
    {"pipe2",
     [](Place& p, Outcome& o) {
       struct Pair {
         int fd[2];
       };
       auto* pair = p.put<Pair>({{-1, -1}});
       o.add(p.call(SYS_pipe2, pair, 0));
       add_fd(o, pair->fd[0]);
       add_fd(o, pair->fd[1]);
     }},
    {"fcntl",
     [](Place& p, Outcome& o) {
       int fd = temporary_file("12345");
       struct flock lock = {};
       lock.l_type = F_WRLCK;
       auto* l = p.put(lock);
       o.add(p.call(SYS_fcntl, fd, F_GETLK, l));
       o.add(l->l_type);
       os::close(fd);
     }},
    {"sendfile",
     [](Place& p, Outcome& o) {
       int from = temporary_file("0123456789"), to = temporary_file();
       auto* offset = p.put<long>(3);
       o.add(p.call(SYS_sendfile, to, from, offset, 100));
       o.add(*offset);
       os::close(from);
       os::close(to);
     }},
    {"copy_file_range",
     [](Place& p, Outcome& o) {
       int from = temporary_file("0123456789"), to = temporary_file();
       auto *in = p.put<long>(3), *out = p.put<long>(1);
       o.add(p.call(SYS_copy_file_range, from, in, to, out, 4, 0));
       o.add(*in);
       o.add(*out);
       os::close(from);
       os::close(to);
     }},
    {"inotify_add_watch",
     [](Place& p, Outcome& o) {
       int fd = static_cast<int>(os::call(SYS_inotify_init1, 0));
       o.add(p.call(SYS_inotify_add_watch, fd, p.text("/tmp"), 2));
       os::close(fd);
     }},
    {"name_to_handle_at",
     [](Place& p, Outcome& o) {
       struct Handle {
         unsigned bytes;
         int type;
         char data[128];
       };
       auto* handle = p.put<Handle>({128, 0, {}});
       auto* mount = p.put<int>(0);
       o.add(p.call(SYS_name_to_handle_at, AT_FDCWD, p.text("/tmp"), handle, mount, 0));
       o.add(handle->bytes);
     }},
    {"mincore",
     [](Place& p, Outcome& o) {
       size_t bytes = 6000 * kPageSize;  // a byte for each page: more than a page of them
       void* range = os::map_near(bytes);
       auto* resident = p.room(6000);
       o.add(p.call(SYS_mincore, range, bytes, resident));
       o.add(resident, 6000);
       os::unmap(range, bytes);
     }},
};

const std::vector<Case> kSocketCases = {
    {"sockets",
     [](Place& p, Outcome& o) {
       sockaddr_un name = abstract_name();
       int server = ::socket(AF_UNIX, SOCK_STREAM, 0), client = ::socket(AF_UNIX, SOCK_STREAM, 0);
       o.add(p.call(SYS_bind, server, p.put(name), sizeof name));
       o.add(::listen(server, 1));
       o.add(p.call(SYS_connect, client, p.put(name), sizeof name));
       auto* peer = p.put<sockaddr_storage>({});
       auto* length = p.put<socklen_t>(sizeof(sockaddr_storage));
       long fd = p.call(SYS_accept4, server, peer, length, 0);
       o.add(*length);
       add_fd(o, fd);
       auto* own = p.put<sockaddr_storage>({});
       auto* own_length = p.put<socklen_t>(sizeof(sockaddr_storage));
       o.add(p.call(SYS_getsockname, server, own, own_length));
       o.add(*own_length);
       o.add(p.call(SYS_getpeername, client, own, own_length));
       os::close(server);
       os::close(client);
     }},
    {"socketpair",
     [](Place& p, Outcome& o) {
       struct Pair {
         int fd[2];
       };
       auto* pair = p.put<Pair>({{-1, -1}});
       o.add(p.call(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, pair));
       add_fd(o, pair->fd[0]);
       add_fd(o, pair->fd[1]);
     }},
    {"sockopt",
     [](Place& p, Outcome& o) {
       int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
       o.add(p.call(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVBUF, p.put<int>(10'000), sizeof(int)));
       auto* value = p.put<int>(0);
       auto* length = p.put<socklen_t>(sizeof(int));
       o.add(p.call(SYS_getsockopt, fd, SOL_SOCKET, SO_RCVBUF, value, length));
       o.add(*value);
       o.add(*length);
       os::close(fd);
     }},
    {"poll",
     [](Place& p, Outcome& o) {
       struct Many {
         pollfd fds[700];
       };
       Many many = {};
       for (auto& f : many.fds) f = {-1, POLLIN, 0};
       many.fds[0].fd = many.fds[699].fd = temporary_file("x");
       auto* list = p.put(many);
       o.add(p.call(SYS_poll, list, 700, 0));
       o.add(list->fds[0].revents);
       o.add(list->fds[699].revents);
       os::close(many.fds[0].fd);
     }},
    {"ioctl",
     [](Place& p, Outcome& o) {
       int fds[2];
       os::pipe(fds, 0);
       os::write(fds[1], "abc", 3);
       auto* bytes = p.put<int>(0);
       o.add(p.call(SYS_ioctl, fds[0], FIONREAD, bytes));
       o.add(*bytes);
       auto* size = p.put<winsize>({});
       o.add(p.call(SYS_ioctl, fds[0], TIOCGWINSZ, size));
       os::close(fds[0]);
       os::close(fds[1]);
     }},
    {"select",
     [](Place& p, Outcome& o) {
       rlimit limit;
       EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
       limit.rlim_cur = limit.rlim_max;
       EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
       int file = temporary_file("x"), fd = ::fcntl(file, F_DUPFD, 1500);  // beyond FD_SETSIZE: larger sets
       ASSERT_EQ(fd / 64, 23);                                             // in the last word
       struct Sets {
         unsigned long words[24];
       };
       Sets sets = {};
       sets.words[fd / 64] |= 1ul << (fd % 64);
       auto *read = p.put(sets), *write = p.put(sets);
       auto* timeout = p.put<timeval>({0, 0});
       o.add(p.call(SYS_select, fd + 1, read, write, 0, timeout));
       o.add(read, sizeof *read);
       o.add(write, sizeof *write);
       os::close(file);
       os::close(fd);
     }},
    {"epoll",
     [](Place& p, Outcome& o) {
       int fd = static_cast<int>(os::call(SYS_epoll_create1, 0)), fds[2];
       os::pipe(fds, 0);
       epoll_event event = {};
       event.events = EPOLLOUT;
       event.data.u64 = 77;
       o.add(p.call(SYS_epoll_ctl, fd, EPOLL_CTL_ADD, fds[1], p.put(event)));
       struct Many {
         epoll_event events[10];
       };
       auto* got = p.put<Many>({});
       o.add(p.call(SYS_epoll_wait, fd, got, 10, 0));
       o.add(static_cast<long>(got->events[0].data.u64));
       for (int f : {fd, fds[0], fds[1]}) os::close(f);
     }},
    {"signalfd4", [](Place& p, Outcome& o) { add_fd(o, p.call(SYS_signalfd4, -1, p.put<uint64_t>(0), 8, 0)); }},
};

// Requests that encode no size, have pointers in their structures, or more behind them than they encode.
const std::vector<Case> kIoctlCases = {
    {"terminal",
     [](Place& p, Outcome& o) {
       int fd = os::open("/dev/ptmx", O_RDWR | O_NOCTTY);
       auto* settings = p.room(60);
       o.add(p.call(SYS_ioctl, fd, TCGETS, settings));
       o.add(settings, 36);
       o.add(p.call(SYS_ioctl, fd, TCSETS, settings));
       o.add(p.call(SYS_ioctl, fd, TIOCSWINSZ, p.put<winsize>({24, 80, 0, 0})));
       auto* size = p.put<winsize>({});
       o.add(p.call(SYS_ioctl, fd, TIOCGWINSZ, size));
       o.add(size->ws_col);
       os::close(fd);
     }},
    {"network_interfaces",
     [](Place& p, Outcome& o) {
       int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
       ifconf list = {};
       list.ifc_len = 100 * sizeof(ifreq);
       list.ifc_buf = p.room(100 * sizeof(ifreq));
       auto* l = p.put(list);
       o.add(p.call(SYS_ioctl, fd, SIOCGIFCONF, l));
       o.add(l->ifc_buf, static_cast<size_t>(l->ifc_len));
       ifreq request = {};
       strcpy(request.ifr_name, "lo");
       auto* r = p.put(request);
       o.add(p.call(SYS_ioctl, fd, SIOCGIFMTU, r));
       o.add(r->ifr_mtu);
       os::close(fd);
     }},
    {"extents_of_a_file",
     [](Place& p, Outcome& o) {
       constexpr unsigned kExtents = 100;
       std::string path = temporary_path();
       int fd = os::open(path.c_str(), O_CREAT | O_RDWR, 0600);
       os::write(fd, "0123456789", 10);
       auto* map = reinterpret_cast<fiemap*>(p.room(sizeof(fiemap) + kExtents * sizeof(fiemap_extent)));
       *map = {};
       map->fm_length = 10;
       map->fm_extent_count = kExtents;
       o.add(p.call(SYS_ioctl, fd, FS_IOC_FIEMAP, map));
       o.add(map->fm_mapped_extents);
       os::close(fd);
       ::unlink(path.c_str());
     }},
};

TEST_CALLS(File, kFileCases);
TEST_CALLS(Socket, kSocketCases);
TEST_CALLS(Ioctl, kIoctlCases);

}  // namespace
}  // namespace farside::preload
