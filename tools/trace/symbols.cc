#include "tools/trace/symbols.h"

#include <cxxabi.h>
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tools/trace/perf_map.h"

namespace farside::trace {
namespace {

constexpr const char* kOwnLibrary = "libfarside_preload.so";
constexpr size_t kMaxFrames = 256;

std::string demangle(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  free(text);
  return result;
}

// The find_elf callback for a module of the process's maps: opens the file of that name, if it is one.
int open_module(Dwfl_Module*, void**, const char* name, Dwarf_Addr, char** file_name, Elf**) {
  int fd = name[0] == '/' ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (fd >= 0) *file_name = strdup(name);
  return fd;
}

const Dwfl_Callbacks kModuleCallbacks = {open_module, dwfl_standard_find_debuginfo, nullptr, nullptr};

bool is_function(Dwarf_Die* die) {
  int tag = dwarf_tag(die);
  return tag == DW_TAG_subprogram || tag == DW_TAG_inlined_subroutine;
}

std::string name_of(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (unsigned code : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name}) {
    if (!dwarf_attr_integrate(die, code, &attribute)) continue;
    if (const char* name = dwarf_formstring(&attribute)) return demangle(name);
  }
  const char* name = dwarf_diename(die);
  return name ? name : "?";
}

uint64_t number(Dwarf_Die* die, unsigned code) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  return dwarf_attr(die, code, &attribute) && dwarf_formudata(&attribute, &value) == 0 ? value : 0;
}

// The name of a file by its number in the compilation unit; may be relative to the unit's directory.
std::string file_name(Dwarf_Die* unit, uint64_t file) {
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  if (dwarf_getsrcfiles(unit, &files, &count) != 0 || file >= count) return "";
  const char* name = dwarf_filesrc(files, file, nullptr, nullptr);
  return name ? name : "";
}

class ElfSymbols : public Symbols {
 public:
  explicit ElfSymbols(const Process& process)
      : process_(process),
        dwfl_(dwfl_begin(&kModuleCallbacks)),
        generated_(std::ifstream(fmt::format("/tmp/perf-{}.map", process.header.pid))) {}
  ~ElfSymbols() override { dwfl_end(dwfl_); }

  Status start() {
    dwfl_report_begin(dwfl_);
    FILE* maps = fmemopen(const_cast<char*>(process_.maps.data()), process_.maps.size(), "r");
    bool reported = maps && dwfl_linux_proc_maps_report(dwfl_, maps) == 0;
    if (maps) fclose(maps);
    if (dwfl_report_end(dwfl_, nullptr, nullptr) != 0 || !reported)
      return failure("cannot read the memory map of process");
    // Loads the modules' ELF files, from which attaching takes the machine type.
    for_each_module([](Dwfl_Module* module) {
      GElf_Addr bias;
      dwfl_module_getelf(module, &bias);
    });
    if (!dwfl_attach_state(dwfl_, nullptr, static_cast<pid_t>(process_.header.pid), &kThreadCallbacks, this)) {
      return failure("cannot unwind stacks of process");
    }
    return {};
  }

  std::vector<Frame> stack(const TraceStack& stack) override {
    current_ = &stack;
    addresses_.clear();
    dwfl_getthread_frames(dwfl_, kThread, add_frame, this);
    if (addresses_.empty()) addresses_.push_back({stack.registers[kTraceRip], false});
    std::vector<Frame> frames;
    for (auto [address, is_return] : addresses_) {
      for (const Frame& frame : frames_at(address, is_return)) frames.push_back(frame);
    }
    return frames;
  }

  std::vector<Frame> frames_at(uint64_t address, bool is_return) override {
    uint64_t within = address - (is_return ? 1 : 0);
    auto found = known_.find(within);
    if (found == known_.end()) found = known_.emplace(within, look_up(within)).first;
    return found->second;
  }

  std::vector<HintPlace> hint_places() override {
    std::vector<HintPlace> places;
    for_each_module([&](Dwfl_Module* module) {
      Dwarf_Addr bias;
      if (!dwfl_module_getdwarf(module, &bias)) return;
      for (Dwarf_Die* unit = nullptr; (unit = dwfl_module_nextcu(module, unit, &bias));)
        find_hints(unit, unit, "", &places);
    });
    return places;
  }

 private:
  static constexpr pid_t kThread = 1;  // the only thread that elfutils sees
  struct Address {
    uint64_t address;
    bool is_return;
  };

  Status failure(const char* what) const {
    return Status::error(EIO, "{} {}: {}; its faults cannot be attributed to lines", what, process_.header.pid,
                         dwfl_errmsg(-1));
  }

  template <typename Visit>
  void for_each_module(Visit visit) {
    auto call = [](Dwfl_Module* module, void**, const char*, Dwarf_Addr, void* argument) {
      (*static_cast<Visit*>(argument))(module);
      return static_cast<int>(DWARF_CB_OK);
    };
    dwfl_getmodules(dwfl_, call, &visit, 0);
  }

  // ---- Callbacks of the unwinder: one thread, stopped at the current stack ----

  static pid_t next_thread(Dwfl*, void* self, void** argument) {
    if (*argument) return 0;
    *argument = self;
    return kThread;
  }
  static bool get_thread(Dwfl*, pid_t, void* self, void** argument) {
    *argument = self;
    return true;
  }
  static bool read_word(Dwfl*, Dwarf_Addr address, Dwarf_Word* value, void* argument) {
    auto* self = static_cast<ElfSymbols*>(argument);
    const TraceStack& s = *self->current_;
    uint64_t at = address - s.registers[kTraceRsp];
    if (s.bytes < sizeof *value || at > s.bytes - sizeof *value) return false;
    memcpy(value, self->process_.stack_bytes.data() + s.offset + at, sizeof *value);
    return true;
  }
  static bool set_registers(Dwfl_Thread* thread, void* argument) {
    const TraceStack& s = *static_cast<ElfSymbols*>(argument)->current_;
    Dwarf_Word registers[kTraceRegisters];
    for (unsigned i = 0; i < kTraceRegisters; i++) registers[i] = s.registers[i];
    dwfl_thread_state_register_pc(thread, registers[kTraceRip]);
    return dwfl_thread_state_registers(thread, 0, kTraceRegisters, registers);
  }
  static int add_frame(Dwfl_Frame* frame, void* argument) {
    auto* self = static_cast<ElfSymbols*>(argument);
    Dwarf_Addr pc = 0;
    bool activation = false;
    if (!dwfl_frame_pc(frame, &pc, &activation)) return DWARF_CB_ABORT;
    self->addresses_.push_back({pc, !activation});
    return self->addresses_.size() < kMaxFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
  }
  static constexpr Dwfl_Thread_Callbacks kThreadCallbacks = {next_thread,   get_thread, read_word,
                                                             set_registers, nullptr,    nullptr};

  // ---- Names ----

  std::vector<Frame> look_up(uint64_t address) {
    if (auto generated = generated_.find(address, process_.program)) return {*generated};
    Dwfl_Module* module = dwfl_addrmodule(dwfl_, address);  // or one nearby
    if (!module) return {{"?", "", 0, "", false}};
    const char* path = dwfl_module_info(module, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    std::string where = path ? path : "?";
    if (where.ends_with(kOwnLibrary)) return {};
    std::vector<Frame> frames = from_debug_information(module, address, where);
    if (frames.empty()) frames.push_back(from_symbol(module, address, where));
    return frames;
  }

  static Frame from_symbol(Dwfl_Module* module, uint64_t address, const std::string& where) {
    GElf_Off offset = 0;
    GElf_Sym symbol;
    const char* name = dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
    if (name) return {fmt::format("{}+{:#x}", demangle(name), offset), "", 0, where, false};
    Dwarf_Addr start = 0;
    dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
    return {fmt::format("{}+{:#x}", where.substr(where.rfind('/') + 1), address - start), "", 0, where, false};
  }

  // The line table has the innermost line. Each inlined function has the line from which it is called.
  std::vector<Frame> from_debug_information(Dwfl_Module* module, uint64_t address, const std::string& where) {
    Dwarf_Addr bias = 0;
    Dwarf_Die* unit = dwfl_module_addrdie(module, address, &bias);
    Dwfl_Line* row = dwfl_module_getsrc(module, address);
    if (!unit || !row) return {};
    int line = 0;
    const char* name = dwfl_lineinfo(row, nullptr, &line, nullptr, nullptr, nullptr);
    std::string file = name ? name : "";
    std::vector<Frame> frames;
    for (Dwarf_Die& die : functions_at(unit, address - bias)) {
      bool inlined = dwarf_tag(&die) == DW_TAG_inlined_subroutine;
      frames.push_back({name_of(&die), absolute(unit, file), line, where, inlined});
      if (!inlined) break;
      file = file_name(unit, number(&die, DW_AT_call_file));
      line = static_cast<int>(number(&die, DW_AT_call_line));
    }
    return frames;
  }

  // From the innermost inlined function to the function that contains the code.
  static std::vector<Dwarf_Die> functions_at(Dwarf_Die* unit, Dwarf_Addr address) {
    std::vector<Dwarf_Die> functions;
    Dwarf_Die* scopes = nullptr;
    int count = dwarf_getscopes(unit, address, &scopes);
    int innermost = 0;
    while (innermost < count && !is_function(&scopes[innermost])) innermost++;
    if (innermost < count) {
      // The scopes above an inlined function are those of its source; needed are those of the code.
      Dwarf_Die* around = nullptr;
      int depth = dwarf_getscopes_die(&scopes[innermost], &around);
      for (int i = 0; i < depth; i++) {
        if (is_function(&around[i])) functions.push_back(around[i]);
      }
      free(around);
    }
    free(scopes);
    if (functions.empty()) descend(unit, address, &functions);
    return functions;
  }

  // dwarf_getscopes skips entries without addresses, such as the function around a lambda that was not inlined.
  static bool descend(Dwarf_Die* parent, Dwarf_Addr address, std::vector<Dwarf_Die>* functions) {
    Dwarf_Die child;
    if (dwarf_child(parent, &child) != 0) return false;
    do {
      bool holds = dwarf_haspc(&child, address) > 0;
      bool has_addresses = dwarf_hasattr(&child, DW_AT_low_pc) || dwarf_hasattr(&child, DW_AT_ranges);
      if (!holds && (has_addresses || !descend(&child, address, functions))) continue;
      if (!holds) return true;
      descend(&child, address, functions);  // the innermost first
      if (is_function(&child)) functions->push_back(child);
      return true;
    } while (dwarf_siblingof(&child, &child) == 0);
    return false;
  }

  static std::string absolute(Dwarf_Die* unit, const std::string& file) {
    if (file.empty() || file[0] == '/') return file;
    Dwarf_Attribute attribute;
    const char* directory = dwarf_attr(unit, DW_AT_comp_dir, &attribute) ? dwarf_formstring(&attribute) : nullptr;
    return directory ? std::string(directory) + "/" + file : file;
  }

  // True for an inlined call of a farside_hint function or of a wrapper: a function that calls one and has "hint" in
  // its name.
  static bool is_hint(Dwarf_Die* call) {
    const char* name = dwarf_diename(call);
    if (!name || !strstr(name, "hint")) return false;
    if (strncmp(name, "farside_hint", strlen("farside_hint")) == 0) return true;
    Dwarf_Die child;
    if (dwarf_child(call, &child) != 0) return false;
    do {
      if (contains_hint(&child)) return true;
    } while (dwarf_siblingof(&child, &child) == 0);
    return false;
  }
  static bool contains_hint(Dwarf_Die* die) {
    if (dwarf_tag(die) == DW_TAG_inlined_subroutine) return is_hint(die);
    Dwarf_Die child;
    if (dwarf_tag(die) != DW_TAG_lexical_block || dwarf_child(die, &child) != 0) return false;
    do {
      if (contains_hint(&child)) return true;
    } while (dwarf_siblingof(&child, &child) == 0);
    return false;
  }

  static void find_hints(Dwarf_Die* unit, Dwarf_Die* parent, const std::string& function,
                         std::vector<HintPlace>* places) {
    Dwarf_Die child;
    if (dwarf_child(parent, &child) != 0) return;
    do {
      int tag = dwarf_tag(&child);
      bool inlined = tag == DW_TAG_inlined_subroutine;
      if (inlined) {
        if (is_hint(&child)) {
          std::string file = absolute(unit, file_name(unit, number(&child, DW_AT_call_file)));
          places->push_back({function, file, static_cast<int>(number(&child, DW_AT_call_line))});
          continue;  // farside_hint_read contains farside_hint, and a wrapper contains both
        }
      }
      find_hints(unit, &child, inlined || tag == DW_TAG_subprogram ? name_of(&child) : function, places);
    } while (dwarf_siblingof(&child, &child) == 0);
  }

  const Process& process_;
  Dwfl* dwfl_;
  PerfMap generated_;
  const TraceStack* current_ = nullptr;
  std::vector<Address> addresses_;
  std::map<uint64_t, std::vector<Frame>> known_;
};

}  // namespace

Result<std::unique_ptr<Symbols>> Symbols::open(const Process& process) {
  auto symbols = std::make_unique<ElfSymbols>(process);
  Status started = symbols->start();
  if (!started.ok()) return started;
  return std::unique_ptr<Symbols>(std::move(symbols));
}

}  // namespace farside::trace
