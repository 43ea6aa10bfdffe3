#include "launch/program_check.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace farside {
namespace {

class ProgramCheckTest : public testing::Test {
 protected:
  ProgramCheckTest() {
    char name[] = "/tmp/farside-check-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ProgramCheckTest() override { std::filesystem::remove_all(folder_); }

  std::string put(const std::string& name, const std::string& content, mode_t mode = 0755) {
    std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    chmod(path.c_str(), mode);
    return path;
  }

  // An ELF header and one program header of the given type.
  static std::string elf(uint32_t segment, unsigned char elf_class = ELFCLASS64, uint16_t machine = 0,
                         uint16_t type = ET_EXEC) {
    Elf64_Ehdr header = {};
    header.e_type = type;
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = elf_class;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
#if defined(__x86_64__)
    header.e_machine = machine ? machine : uint16_t{EM_X86_64};
#else
    header.e_machine = machine ? machine : uint16_t{EM_AARCH64};
#endif
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr program = {};
    program.p_type = segment;
    return std::string(reinterpret_cast<char*>(&header), sizeof header) +
           std::string(reinterpret_cast<char*>(&program), sizeof program);
  }

  static void expect_refused(const std::string& path, int exit_status, const char* because) {
    Status status = check_program(path);
    EXPECT_FALSE(status.ok()) << path;
    EXPECT_EQ(exit_status_of(status), exit_status) << status.text();
    EXPECT_NE(std::string(status.text()).find(because), std::string::npos) << status.text();
  }

  std::string folder_;
};

TEST_F(ProgramCheckTest, AcceptsDynamicProgramsAndScripts) {
  EXPECT_TRUE(check_program("/proc/self/exe").ok());
  EXPECT_TRUE(check_program(put("dynamic", elf(PT_INTERP))).ok());
  EXPECT_TRUE(check_program(put("script", "#! /bin/sh -e\necho\n")).ok());
  EXPECT_TRUE(check_program(put("bare", "#!/bin/sh")).ok());
}

TEST_F(ProgramCheckTest, RefusesWhatCannotBePreloaded) {
  expect_refused(put("static", elf(PT_LOAD)), 126, "statically linked");
  expect_refused(put("old", elf(PT_INTERP, ELFCLASS32)), 126, "32-bit");
  expect_refused(put("alien", elf(PT_INTERP, ELFCLASS64, EM_S390)), 126, "another processor");
  expect_refused(put("short", std::string(ELFMAG) + "\2"), 126, "cut short");
  expect_refused(put("cut", elf(PT_INTERP).substr(0, sizeof(Elf64_Ehdr))), 126, "cut short");
  expect_refused(put("object", elf(PT_LOAD, ELFCLASS64, 0, ET_REL)), 126, "neither");
  expect_refused(put("setuid", elf(PT_INTERP), 04755), 126, "setuid");
  expect_refused(put("setgid", elf(PT_INTERP), 02755), 126, "setgid");
}

TEST_F(ProgramCheckTest, DistinguishesStaticProgramsFromTheDynamicLinker) {
  EXPECT_TRUE(is_static_program(put("static", elf(PT_LOAD))));
  EXPECT_TRUE(is_static_program(put("static-pie", elf(PT_LOAD, ELFCLASS64, 0, ET_DYN))));  // without a dynamic section
  EXPECT_FALSE(is_static_program(put("dynamic", elf(PT_INTERP))));
  EXPECT_FALSE(is_static_program(put("plain", elf(PT_LOAD), 0644)));
  std::string linker = "/lib64/ld-linux-x86-64.so.2";
  if (std::filesystem::exists(linker)) {
    EXPECT_FALSE(is_static_program(linker));
    EXPECT_TRUE(check_program(linker).ok());
  }
}

// A program whose dynamic section names these strings.
std::string dynamic_elf(std::string elf_of_interpreter, const std::string& strings) {
  struct {
    Elf64_Ehdr header = {};
    Elf64_Phdr interpreter = {}, load = {}, dynamic = {};
    Elf64_Dyn table = {}, size = {};
  } file;
  memcpy(&file.header, elf_of_interpreter.data(), sizeof file.header);
  file.header.e_phnum = 3;
  file.interpreter.p_type = PT_INTERP;
  file.load.p_type = PT_LOAD;
  file.load.p_vaddr = 0x1000;
  file.load.p_filesz = sizeof file + strings.size();
  file.dynamic.p_type = PT_DYNAMIC;
  file.dynamic.p_offset = offsetof(decltype(file), table);
  file.dynamic.p_filesz = 2 * sizeof(Elf64_Dyn);
  file.table.d_tag = DT_STRTAB;
  file.table.d_un.d_ptr = 0x1000 + sizeof file;
  file.size.d_tag = DT_STRSZ;
  file.size.d_un.d_val = strings.size();
  return std::string(reinterpret_cast<char*>(&file), sizeof file) + strings;
}

TEST_F(ProgramCheckTest, RefusesSanitizers) {
  std::string names("\0libc.so.6\0__asan_init\0malloc\0", 31), others("\0libc.so.6\0asan\0malloc\0", 24);
  expect_refused(put("sanitized", dynamic_elf(elf(PT_INTERP), names)), 126, "sanitizer");
  EXPECT_TRUE(check_program(put("ordinary", dynamic_elf(elf(PT_INTERP), others))).ok());
  std::string cut = dynamic_elf(elf(PT_INTERP), names);
  for (size_t bytes = sizeof(Elf64_Ehdr); bytes < cut.size(); bytes++) {  // no read behind the end
    bool refused = !check_program(put("cut", cut.substr(0, bytes))).ok();
    EXPECT_TRUE(refused || bytes >= sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr));
  }
}

TEST_F(ProgramCheckTest, FollowsScriptsToTheirInterpreter) {
  expect_refused(put("on-static", "#!" + put("static", elf(PT_LOAD)) + " -x\n"), 126, "statically linked");
  expect_refused(put("on-nothing", "#!/no/such/interpreter\n"), 127, "/no/such/interpreter");
  expect_refused(put("endless", "#!" + folder_ + "/endless\n"), 126, "too many levels");
}

TEST_F(ProgramCheckTest, ReportsLikeAShellWhatCannotBeRun) {
  expect_refused(folder_ + "/absent", 127, "No such file");
  expect_refused(folder_, 126, "not a file");
  expect_refused(put("text", "hello\n"), 126, "neither");
  expect_refused(put("empty", ""), 126, "neither");
  expect_refused(put("plain", elf(PT_INTERP), 0644), 126, "chmod +x");
}

TEST_F(ProgramCheckTest, FindsProgramsAsAShellDoes) {
  std::string tool = put("tool", "#!/bin/sh\n"), data = put("data", "", 0644);
  std::string search = "/nowhere:" + folder_;
  EXPECT_EQ(*find_program("tool", search), tool);
  EXPECT_EQ(*find_program("data", search), data);
  EXPECT_EQ(*find_program("./x", search), "./x");
  EXPECT_EQ(exit_status_of(find_program("none", search).status()), 127);
  EXPECT_EQ(exit_status_of(find_program("", search).status()), 127);
}

}  // namespace
}  // namespace farside
