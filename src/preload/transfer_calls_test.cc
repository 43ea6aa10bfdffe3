// Guarded transfers of data with all kinds of arguments: buffers, vectors, messages, memory of processes.
#include <sys/socket.h>
#include <sys/stat.h>

#include <climits>

#include "preload/call_test_support.h"

namespace farside::preload {
namespace {

struct Vector {
  iovec piece[3];
};

void files(Place& p, Outcome& o) {
  int fd = temporary_file();
  auto* text = p.text("0123456789abcdef");
  o.add(p.call(SYS_write, fd, text, 16));
  o.add(p.call(SYS_pwrite64, fd, text, 5, 3));
  auto* to = p.room(100);
  o.add(p.call(SYS_pread64, fd, to, 100, 2));
  o.add(to, 14);
  o.add(p.call(SYS_read, fd, to, 100));  // the file's own position is at its end
  o.add(::lseek(fd, 0, SEEK_SET));
  o.add(p.call(SYS_read, fd, to, 7));
  o.add(to, 7);
  os::close(fd);
}

void vectors(Place& p, Outcome& o) {
  int fd = temporary_file();
  Vector from = {{{p.text("0123456789"), 10}, {nullptr, 0}, {p.text("abcdefgh"), 8}}};
  o.add(p.call(SYS_writev, fd, p.put(from), 3));
  o.add(p.call(SYS_pwritev, fd, p.put(from), 3, 5, 0));
  o.add(p.call(SYS_pwritev2, fd, p.put(from), 1, -1, -1, 0));  // at the file's own position
  char *a = p.room(10), *b = p.room(30);
  Vector to = {{{a, 10}, {b, 4}, {b + 4, 26}}};
  o.add(::lseek(fd, 0, SEEK_SET));
  long n = p.call(SYS_readv, fd, p.put(to), 3);
  o.add(n);
  o.add(a, 10);
  o.add(b, static_cast<size_t>(n) - 10);
  o.add(p.call(SYS_preadv, fd, p.put(to), 2, 9, 0));
  o.add(a, 10);
  o.add(p.call(SYS_preadv2, fd, p.put(to), 2, 3, 0, 0));
  o.add(a, 10);
  os::close(fd);
}

void streams(Place& p, Outcome& o) {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  o.add(p.call(SYS_sendto, pair[0], p.text("hello"), 5, 0, 0, 0));
  auto* to = p.room(100);
  o.add(p.call(SYS_recvfrom, pair[1], to, 100, 0, 0, 0));  // no more than there is
  o.add(to, 5);
  o.add(p.call(SYS_recvfrom, pair[1], to, 100, MSG_DONTWAIT, 0, 0));
  os::close(pair[0]);
  o.add(p.call(SYS_recvfrom, pair[1], to, 100, 0, 0, 0));
  os::close(pair[1]);
}

void datagrams(Place& p, Outcome& o) {
  sockaddr_un name = abstract_name();
  int from = ::socket(AF_UNIX, SOCK_DGRAM, 0), to = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un sender = abstract_name();
  o.add(::bind(to, reinterpret_cast<sockaddr*>(&name), sizeof name));
  o.add(::bind(from, reinterpret_cast<sockaddr*>(&sender), sizeof sender));
  char near[] = "near";
  o.add(p.call(SYS_sendto, from, p.text("far data"), 8, 0, p.put(name), sizeof name));
  o.add(p.call(SYS_sendto, from, near, 4, 0, p.put(name), sizeof name));  // only the address is far
  auto* data = p.room(100);
  auto* address = p.put<sockaddr_storage>({});
  auto* length = p.put<socklen_t>(sizeof(sockaddr_storage));
  o.add(p.call(SYS_recvfrom, to, data, 100, 0, address, length));
  o.add(data, 8);
  o.add(*length);
  char buffer[100];
  auto* second = p.put<socklen_t>(sizeof(sockaddr_storage));
  o.add(p.call(SYS_recvfrom, to, buffer, 100, 0, address, second));
  o.add(*second);
  o.add(p.call(SYS_sendto, from, p.text("x"), 0, 0, p.put(name), sizeof name));  // empty
  o.add(p.call(SYS_recvfrom, to, data, 0, MSG_DONTWAIT, address, p.put<socklen_t>(sizeof(sockaddr_storage))));
  os::close(from);
  os::close(to);
}

void messages(Place& p, Outcome& o) {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  struct Control {
    alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int))];
  };
  Control control = {};
  auto* c = reinterpret_cast<cmsghdr*>(control.bytes);
  *c = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(c), &pair[0], sizeof(int));
  msghdr sent = {};
  sent.msg_iov =
      reinterpret_cast<iovec*>(p.put<Vector>({{{p.text("one "), 4}, {p.text("two "), 4}, {p.text("three"), 5}}}));
  sent.msg_iovlen = 3;
  sent.msg_control = p.put(control);
  sent.msg_controllen = sizeof control;
  o.add(p.call(SYS_sendmsg, pair[0], p.put(sent), 0));
  char *a = p.room(5), *b = p.room(50);
  msghdr received = {};
  received.msg_iov = reinterpret_cast<iovec*>(p.put<Vector>({{{a, 5}, {b, 20}, {b + 20, 30}}}));
  received.msg_iovlen = 3;
  auto* ancillary = p.put<Control>({});
  received.msg_control = ancillary;
  received.msg_controllen = sizeof *ancillary;
  received.msg_flags = -1;
  auto* header = p.put(received);
  o.add(p.call(SYS_recvmsg, pair[1], header, 0));
  o.add(a, 5);
  o.add(b, 8);
  o.add(static_cast<long>(header->msg_controllen));
  o.add(header->msg_flags);
  int passed = -1;
  memcpy(&passed, CMSG_DATA(reinterpret_cast<cmsghdr*>(ancillary)), sizeof passed);
  add_fd(o, passed);
  os::close(pair[0]);
  os::close(pair[1]);
}

void addressed_messages(Place& p, Outcome& o) {
  sockaddr_un name = abstract_name(), sender = abstract_name();
  int from = ::socket(AF_UNIX, SOCK_DGRAM, 0), to = ::socket(AF_UNIX, SOCK_DGRAM, 0);
  o.add(::bind(to, reinterpret_cast<sockaddr*>(&name), sizeof name));
  o.add(::bind(from, reinterpret_cast<sockaddr*>(&sender), sizeof sender - 9));
  char data[] = "data", got[10] = {};
  iovec near = {data, 4};
  msghdr sent = {p.put(name), sizeof name, &near, 1, nullptr, 0, 0};  // only the address is far
  o.add(p.call(SYS_sendmsg, from, &sent, 0));
  near = {got, sizeof got};
  struct Room {
    char bytes[200];
  };
  auto *address = p.put<sockaddr_storage>({}), *unused = reinterpret_cast<sockaddr_storage*>(p.put<Room>({}));
  msghdr received = {address, sizeof *address, &near, 1, unused, sizeof(Room), -1};
  o.add(p.call(SYS_recvmsg, to, &received, 0));
  o.add(got, 4);
  o.add(received.msg_namelen);  // what came of the address and of ancillary data
  o.add(static_cast<long>(received.msg_controllen));
  o.add(address->ss_family);
  os::close(from);
  os::close(to);
}

void many_messages(Place& p, Outcome& o) {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
  struct Many {
    mmsghdr message[3];
  };
  auto many = [&](char* first, char* second, char* third, size_t bytes) {
    auto* v = p.put<Vector>({{{first, bytes}, {second, bytes}, {third, bytes}}});
    Many m = {};
    for (int i = 0; i < 3; i++) m.message[i].msg_hdr.msg_iov = &v->piece[i];
    for (auto& one : m.message) one.msg_hdr.msg_iovlen = 1;
    return p.put(m);
  };
  auto* sent = many(p.text("one"), p.text("two"), p.text("six"), 3);
  o.add(p.call(SYS_sendmmsg, pair[0], sent, 3, 0));
  o.add(sent->message[2].msg_len);
  char *a = p.room(10), *b = p.room(10), *c = p.room(10);
  auto* got = many(a, b, c, 10);
  o.add(p.call(SYS_recvmmsg, pair[1], got, 2, 0, 0));
  o.add(a, 3);
  o.add(b, 3);
  o.add(got->message[1].msg_len);
  o.add(p.call(SYS_recvmmsg, pair[1], got, 3, MSG_WAITFORONE, 0));  // one is left
  o.add(a, 3);
  o.add(p.call(SYS_recvmmsg, pair[1], got, 3, MSG_DONTWAIT, 0));
  os::close(pair[0]);
  os::close(pair[1]);
}

void processes(Place& p, Outcome& o) {
  char remote[] = "what the other process has";
  Vector there = {{{remote, 26}, {}, {}}};
  char *a = p.room(10), *b = p.room(16);
  o.add(p.call(SYS_process_vm_readv, getpid(), p.put<Vector>({{{a, 10}, {b, 16}, {}}}), 2, &there, 1, 0));
  o.add(a, 10);
  o.add(b, 16);
  o.add(p.call(SYS_process_vm_writev, getpid(), p.put<Vector>({{{p.text("THAT"), 4}, {}, {}}}), 1, &there, 1, 0));
  o.add(remote, 26);
}

void errors(Place& p, Outcome& o) {
  auto* to = p.room(100);
  o.add(p.call(SYS_read, -1, to, 100));
  o.add(p.call(SYS_write, -1, to, 100));
  o.add(p.call(SYS_sendto, 0, to, 100, 0, 0, 0));
  o.add(p.call(SYS_readv, -1, p.put<Vector>({{{to, 10}, {}, {}}}), 1));
  o.add(p.call(SYS_readv, 0, p.put<Vector>({{{to, 10}, {}, {}}}), IOV_MAX + 1));
  int fd = temporary_file("abc");
  o.add(p.call(SYS_read, fd, to, 0));
  o.add(p.call(SYS_pread64, fd, to, 10, -1));
  o.add(p.call(SYS_writev, fd, p.put<Vector>({{{to, 0}, {}, {}}}), 1));
  o.add(p.call(SYS_readv, fd, p.put<Vector>({}), 0));
  os::close(fd);
}

const std::vector<Case> kTransferCases = {{"files", files},
                                          {"vectors", vectors},
                                          {"streams", streams},
                                          {"datagrams", datagrams},
                                          {"message", messages},
                                          {"addressed_messages", addressed_messages},
                                          {"several_messages", many_messages},
                                          {"processes", processes},
                                          {"errors", errors}};

TEST_CALLS(Transfer, kTransferCases);

}  // namespace
}  // namespace farside::preload
