#include "cli/doctor/checks.h"

#include <gtest/gtest.h>

#include "launch/preload.h"
#include "report/machine.h"

namespace farside::cli {
namespace {

TEST(DoctorTest, ModeFollowsAbilities) {
  EXPECT_EQ(choose_mode({true, true, true}).mode, "signal");
  EXPECT_EQ(choose_mode({true, true, false}).mode, "signal");
  EXPECT_EQ(choose_mode({true, false, true}).mode, "handler");
  EXPECT_EQ(choose_mode({false, true, true}).mode, "handler");
  EXPECT_FALSE(choose_mode({true, false, false}).usable);
  EXPECT_NE(choose_mode({true, false, false}).reason.find("guard"), std::string::npos);
}

TEST(DoctorTest, KernelReleasesAreRead) {
  EXPECT_EQ(kernel_number("6.18.44-x"), 6018);
  EXPECT_EQ(kernel_number("5.10.0"), 5010);
  EXPECT_EQ(kernel_number("what"), 0);
}

TEST(DoctorTest, AMissingRequirementMakesTheMachineUnusable) {
  Diagnosis diagnosis{{{"a", Health::kOk, "", ""}, {"b", Health::kLimited, "", ""}}, {true, "signal", ""}};
  EXPECT_TRUE(diagnosis.usable());
  diagnosis.findings.push_back({"c", Health::kMissing, "", ""});
  EXPECT_FALSE(diagnosis.usable());
  EXPECT_FALSE((Diagnosis{{}, {false, "none", ""}}).usable());
}

TEST(DoctorTest, EveryProbeRunsAndFailuresHaveAdvice) {
  Diagnosis diagnosis = diagnose(Options{});
  EXPECT_GE(diagnosis.findings.size(), 18U);
  for (const Finding& finding : diagnosis.findings) {
    EXPECT_FALSE(finding.found.empty()) << finding.name;
    EXPECT_EQ(finding.advice.empty(), finding.health == Health::kOk) << finding.name;
  }
}

TEST(DoctorTest, HugeMemoryFilesAreRecognized) {
  for (const char* huge :
       {"[always] within_size advise never deny force", "always [within_size] advise never deny force",
        "always within_size advise never deny [force]"})
    EXPECT_TRUE(memory_files_are_huge(huge)) << huge;
  for (const char* small :
       {"always within_size [advise] never deny force", "always within_size advise [never] deny force",
        "always within_size advise never [deny] force", ""})
    EXPECT_FALSE(memory_files_are_huge(small)) << small;
}

TEST(PreloadTest, IsAppendedToTheExistingList) {
  EXPECT_EQ(*preload_list(nullptr, "/f.so"), "/f.so");
  EXPECT_EQ(*preload_list("", "/f.so"), "/f.so");
  EXPECT_EQ(*preload_list("/a.so", "/f.so"), "/a.so:/f.so");
  EXPECT_FALSE(preload_list("", "/my files/f.so").ok());
  EXPECT_EQ(tunables_for_audit(nullptr), "glibc.rtld.optional_static_tls=16384");
  EXPECT_EQ(tunables_for_audit("glibc.malloc.check=1"), "glibc.malloc.check=1:glibc.rtld.optional_static_tls=16384");
  EXPECT_EQ(tunables_for_audit("glibc.rtld.optional_static_tls=16384"), "glibc.rtld.optional_static_tls=16384");
}

}  // namespace
}  // namespace farside::cli
