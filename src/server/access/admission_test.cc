#include "server/access/admission.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace farside::server {
namespace {

// Lowers the limit on descriptors while it exists.
class DescriptorLimit {
 public:
  explicit DescriptorLimit(rlim_t limit) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = {limit, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

TEST(AdmissionTest, NewRegionsAreRefusedBeforeConnections) {
  DescriptorLimit limit(64);
  Admission admission;
  EXPECT_EQ(admission.enter_region(47, "unix"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter_region(48, "unix"), Admission::Refusal::kDescriptors);
  EXPECT_TRUE(admission.has_room_for_regions());
  EXPECT_EQ(admission.enter(55, "unix"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter(56, "unix"), Admission::Refusal::kDescriptors);
  EXPECT_EQ(admission.refused(Admission::Refusal::kDescriptors), 2u);
  EXPECT_EQ(admission.max_pending(), 8u);
}

TEST(AdmissionTest, OneSourceTakesNoMoreThanHalf) {
  DescriptorLimit limit(64);
  Admission admission;
  for (int i = 0; i < 21; i++) EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter_region(10, "10.0.0.1"), Admission::Refusal::kNone);
  for (int i = 0; i < 7; i++) EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter_region(10, "10.0.0.1"), Admission::Refusal::kSource);
  EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kSource);
  for (int i = 0; i < 27; i++) EXPECT_EQ(admission.enter(10, "127.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.enter(10, "10.0.0.3"), Admission::Refusal::kTotal);
  for (int i = 0; i < 2; i++) admission.leave("10.0.0.1");
  EXPECT_EQ(admission.enter(10, "10.0.0.1"), Admission::Refusal::kNone);
  EXPECT_EQ(admission.accepted(), 56u);
  EXPECT_EQ(admission.count(), 56u);
}

}  // namespace
}  // namespace farside::server
