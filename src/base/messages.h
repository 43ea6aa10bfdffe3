// Identifiers of messages: [F201] at the end of a message refers to docs/troubleshooting.md, which has the cause and
// the remedy of each. Status::error, log and die add the identifier of the first row of the table whose key occurs in
// the format. scripts/check_messages.py compares the table with the page and with the sources. Async-signal-safe.
#pragma once
#include <string_view>

namespace farside {

struct MessageId {
  std::string_view id;
  std::string_view key;  // a part of the format of such messages
};

// Families of messages that have no row of their own: log_failure() adds these.
inline constexpr std::string_view kUsageError = "F001";
inline constexpr std::string_view kCommandFailed = "F002";
inline constexpr std::string_view kProgramNotRunnable = "F003";

inline constexpr MessageId kMessageIds[] = {
    {kUsageError, "; see {} --help"},
    {"F900", "internal error"},
    // Reaching memory servers and controllers
    {"F101", "cannot reach {} {}"},
    {"F102", "accepted the connection but sent no reply"},
    {"F102", "did not reply; check that it runs"},
    {"F103", "{} is not a Farside server"},
    {"F104", "uses another version of the protocol"},
    {"F105", "rejected the token"},
    {"F120", "did not prove that it knows the token"},
    {"F121", "the quota of the token {}"},
    {"F121", "the token {} may not"},
    {"F122", "is no operation; use"},
    {"F122", "follow a secret"},
    {"F122", "a line begins with client or server"},
    {"F122", "write {} NAME SECRET"},
    {"F122", "the name {} is "},
    {"F122", "the secret of {} has"},
    {"F122", "nothing follows the secret of a server"},
    {"F122", "have the same secret"},
    {"F122", "names no token; write"},
    {"F122", "names {} tokens; at most"},
    {"F123", "which had the token of this run, was closed"},
    {"F123", "process {} runs natively"},
    {"F106", "rejected the connection: "},
    {"F106", "rejected the request for its servers"},
    {"F107", "cannot resolve the host"},
    {"F108", "lists no memory server"},
    {"F109", "replicas require as many memory servers"},
    {"F110", "'{}' is not an address of a memory server"},
    {"F110", "'{}' has no "},
    {"F110", "--far names "},
    {"F110", "an address in --far"},
    {"F110", "the list of memory servers is longer"},
    {"F110", "the address of the memory server is longer"},
    {"F110", "is not a setting of shm://"},
    {"F110", "is not a path of a Unix socket"},
    {"F110", "is a controller; it cannot be combined"},
    {"F110", "the token is longer"},
    {"F111", "be reached without encryption"},
    {"F111", "is not encrypted: who reads the network"},
    {"F112", "needs the relay that 'farside run' starts"},
    {"F112", "UCX cannot be loaded"},
    {"F112", "UCX finds none of the transports"},
    {"F112", "UCX finds no way to a memory server"},
    {"F112", "a memory server offers no UCX"},
    {"F112", "UCX cannot share a client's memory"},
    {"F112", "the network card of --ucx {}"},
    {"F112", "--ucx {} has transports without checks"},
    {"F110", "is not a setting of file:"},
    {"F110", "is not an absolute path of a far file"},
    {"F113", "the far file {} exists"},
    {"F113", "cannot {} the far file"},
    {"F113", "the device {} "},
    {"F113", "has no size; write file:"},
    {"F113", "{}: the size is less than"},
    {"F113", "the file system of {} has {} free"},
    {"F113", "the file system of {} has no direct I/O"},
    {"F113", "crypt=yes needs"},
    {"F113", "a far file has at most"},
    {"F113", "cannot overwrite the far file"},
    {"F113", "of this run use its far file"},
    {"F113", "has no room for the table of one more process"},
    {"F123", "the descriptors of the far file, which this run had"},
    // Losing them
    {"F201", "has not responded for"},
    {"F202", "it closed the connection and accepts no new one"},
    {"F202", "closed the connection; check why it ended"},
    {"F203", "what it sent is not Farside's protocol"},
    {"F203", "was damaged, and is requested again"},
    {"F204", "refused a request: "},
    {"F204", "rejected a request: "},
    {"F205", "memory server {} is lost"},
    {"F205", "all memory servers of {} are lost"},
    {"F206", "has no snapshot of its parent's far memory"},
    {"F206", "a forked child that touches far memory will end"},
    {"F207", "did not pass its memory file"},
    {"F208", "the far file {} cannot be "},
    {"F209", "of far memory is damaged in the far file"},
    {"F210", "the far file {} is full"},
    // Far memory that cannot be had
    {"F301", "far memory is full"},
    {"F301", "the memory servers are full"},
    {"F301", "the server is full"},
    {"F302", "quota of {} is exhausted"},
    {"F303", "no far memory can be reserved"},
    {"F304", "memory servers accept new slabs"},
    // Limits of this machine
    {"F401", "a thread has waited 10 s for near memory"},
    {"F402", "the machine is out of memory"},
    {"F403", "out of memory: "},
    {"F404", "cannot reserve {} bytes of addresses"},
    {"F404", "cannot reserve addresses"},
    {"F404", "cannot reserve a page table"},
    {"F404", "cannot reserve a table of {} huge pages"},
    {"F404", "no page numbers are left"},
    {"F404", "cannot map {} bytes of far memory"},
    {"F404", "cannot map far memory"},
    {"F404", "cannot map the table of the far file"},
    {"F404", "no memory for the tables of a trace"},
    {"F405", "too many open files"},
    {"F405", "cannot open a pipe"},
    {"F406", "cannot start an evictor thread"},
    {"F406", "cannot start the fault handler thread"},
    {"F406", "cannot start the evacuator's thread"},
    {"F406", "no more threads may be created"},
    {"F407", "more than {} threads"},
    // What the kernel or a container forbids
    {"F501", "userfaultfd is not usable"},
    {"F502", "signal mode needs Syscall User Dispatch"},
    {"F502", "cannot arm Syscall User Dispatch"},
    {"F502", "cannot guard a new thread"},
    {"F503", "vmsplice is refused"},
    {"F504", "this machine lacks what the run needs"},
    {"F505", "--core=all needs signal mode"},
    {"F506", "cannot register its far memory with userfaultfd"},
    {"F507", "no random numbers"},
    // What programs do
    {"F600", "the core dump lacks"},
    {"F601", "is refused in signal mode"},
    {"F602", "fork is refused"},
    {"F603", "the program closed descriptors of Farside"},
    {"F604", "Valgrind cannot run"},
    {"F605", "is not supported on far memory"},
    {"F606", "the program locks its memory"},
    {"F607", "a far pointer refers to no object"},
    {"F608", "deadlock: all {} fibers"},
    {"F609", "the fibers' epoll descriptor"},
    {"F610", "is statically linked"},
    {"F610", "a static program needs /proc"},
    {"F611", "faults cannot be traced in handler mode"},
    {"F611", "cannot write the trace"},
    {"F612", "moves of far objects are permitted"},
    // Memory servers
    {"F701", "cannot listen on"},
    {"F701", "is not an address to listen on"},
    {"F701", "is too long for a Unix socket"},
    {"F701", "exists and is not a socket"},
    {"F701", "another server listens on"},
    {"F702", "the server has no file descriptors left"},
    {"F702", "the server cannot create a memory file"},
    {"F702", "no descriptor for a new connection"},
    {"F703", "closed a connection: "},
    {"F704", "no such region"},
    {"F705", "this region was given up"},
    {"F706", "the controller {} {}; retrying"},
    // Functions on memory servers
    {"F801", "cannot call functions on memory server"},
    {"F801", "broke during a call"},
    {"F801", "to a call was damaged"},
    {"F802", "knows no functions"},
    {"F802", "refused a call"},
    {"F803", "is in no loaded program or shared object"},
    {"F803", "has changed since it was loaded"},
    {"F803", "whose functions are called on memory servers"},
    {"F803", "is not position-independent"},
    {"F804", "a range of the call is not memory"},
    {"F805", "the region has snapshots, of forked processes"},
    {"F806", "a process for functions"},
    {"F806", "--offload needs user, mount and network namespaces"},
};

// The identifier of messages with this format; "" if there is none.
std::string_view message_id(std::string_view format);

// Appends " [F201]" to the `used` bytes of a text; shortens the text where there is not enough room. Returns the new
// length.
size_t append_id(char* text, size_t used, size_t room, std::string_view id);

}  // namespace farside
