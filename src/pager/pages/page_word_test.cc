// Which flags of a page word go with which state.
#include "pager/pages/page_word.h"

#include <gtest/gtest.h>

namespace farside::pager {
namespace {

constexpr PageWord word_of(PageState state, uint64_t flags) { return PageWord().with_state(state).with(flags); }

TEST(PageWord, AFlagIsValidInTheStatesThatHaveIt) {
  struct Flag {
    uint64_t flags;
    bool valid[6];  // by state
  };
  constexpr Flag kFlags[] = {
      {PageWord::kForeign, {true, false, false, false, false, false}},
      {PageWord::kFreed | PageWord::kDirty, {false, false, false, false, true, true}},
      {PageWord::kSealed, {false, true, false, false, false, true}},
      {PageWord::kSealed | PageWord::kStored, {false, false, true, false, false, true}},
  };
  for (const Flag& flag : kFlags) {
    for (uint64_t state = 0; state < std::size(flag.valid); state++) {
      PageWord word = word_of(static_cast<PageState>(state), flag.flags);
      EXPECT_EQ(word.is_valid(), flag.valid[state]) << std::hex << word.bits();
    }
  }
}

TEST(PageWord, AForeignPageIsNotCommitted) {
  PageWord foreign = word_of(PageState::kUnmapped, PageWord::kForeign);
  EXPECT_FALSE(foreign.may_become(foreign.with_state(PageState::kUntouched)));
  EXPECT_TRUE(foreign.without(PageWord::kForeign).may_become(PageWord().with_state(PageState::kUntouched)));
}

TEST(PageWord, ASealedPageIsNotFetched) {
  PageWord sealed = word_of(PageState::kFar, PageWord::kStored | PageWord::kSealed);
  EXPECT_FALSE(sealed.may_become(sealed.with_state(PageState::kFetching)));
  EXPECT_TRUE(sealed.without(PageWord::kSealed).may_become(word_of(PageState::kFetching, PageWord::kStored)));
}

TEST(PageWord, AnOwnerLeavesTheFlags) {
  constexpr auto kLast = static_cast<uint16_t>(PageWord::kOwners - 1);
  PageWord freed = word_of(PageState::kNear, PageWord::kFreed | PageWord::kDirty);
  PageWord owned = freed.with_state(PageState::kEvicting).with_owner(kLast);
  EXPECT_EQ(owned.owner(), kLast);
  EXPECT_TRUE(owned.has(PageWord::kFreed) && !owned.has(PageWord::kForeign));
  EXPECT_EQ(owned.with_owner(0).with_state(PageState::kNear).bits(), freed.bits());
}

}  // namespace
}  // namespace farside::pager
