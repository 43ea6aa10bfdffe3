#include "pager/thread/prefetch.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace farside::pager {
namespace {

constexpr unsigned kStreams = 12;  // followed at once
constexpr int64_t kSlack = 16;     // a fault this many pages of the stream beyond the marker continues it
constexpr PageIndex kBase = 1'000'000;

PageIndex at(int64_t offset) { return static_cast<PageIndex>(static_cast<int64_t>(kBase) + offset); }

// Three faults at equal distance; the last one's window.
Window confirm(Prefetcher& p, PageIndex first, int64_t stride) {
  EXPECT_EQ(p.on_fault(first).count, 0u);
  EXPECT_EQ(p.on_fault(first + static_cast<PageIndex>(stride)).count, 0u);
  return p.on_fault(first + static_cast<PageIndex>(2 * stride));
}

void take_all(Prefetcher& p, const Window& w) { p.record_window(w.count, w.count); }

PageIndex after(const Window& w) { return static_cast<PageIndex>(w.from + w.stride * (w.count + 1)); }

TEST(Prefetcher, TheThirdFaultAtEqualDistanceConfirms) {
  for (int64_t stride :
       {int64_t{1}, int64_t{-1}, int64_t{2}, int64_t{-7}, Prefetcher::kMaxStride, -Prefetcher::kMaxStride}) {
    Prefetcher p;
    Window w = confirm(p, kBase, stride);
    EXPECT_EQ(w.from, static_cast<int64_t>(kBase) + 2 * stride);
    EXPECT_EQ(w.stride, stride);
    EXPECT_EQ(w.count, Prefetcher::kFirstWindow) << stride;
  }
}

TEST(Prefetcher, UnequalDistancesConfirmNothing) {
  Prefetcher p;
  for (int64_t offset : {0, 1, 3, 4, 6, 7, 5, 8}) EXPECT_EQ(p.on_fault(at(offset)).count, 0u) << offset;
  // The last two distances count: 5 -> 8 -> 11.
  EXPECT_EQ(p.on_fault(at(11)).count, Prefetcher::kFirstWindow);
}

TEST(Prefetcher, TooLargeStridesAreNoStream) {
  for (int64_t stride : {Prefetcher::kMaxStride + 1, -Prefetcher::kMaxStride - 1, int64_t{100'000}}) {
    Prefetcher p;
    for (int64_t i = 0; i < 100; i++) EXPECT_EQ(p.on_fault(at(i * stride)).count, 0u) << stride;
  }
}

TEST(Prefetcher, FaultsOfOnePageAreNoStream) {
  Prefetcher p;
  for (int i = 0; i < 100; i++) EXPECT_EQ(p.on_fault(kBase).count, 0u);
}

TEST(Prefetcher, WindowsDoubleUpToTheLargest) {
  for (int64_t stride : {1, -1, 5}) {
    Prefetcher p;
    Window w = confirm(p, kBase, stride);
    for (unsigned expected : {4u, 8u, 16u, 32u, 64u, 64u, 64u}) {
      ASSERT_EQ(w.count, expected) << stride;
      ASSERT_EQ(w.stride, stride);
      take_all(p, w);
      PageIndex next = after(w);
      w = p.on_fault(next);
      EXPECT_EQ(w.from, static_cast<int64_t>(next));
    }
  }
}

// Every page of a long walk is a fault or in a window, none of them twice, and faults are few.
TEST(Prefetcher, AWalkIsFetchedOnce) {
  for (int64_t stride : {1, -1, 3}) {
    Prefetcher p;
    std::set<int64_t> fetched;
    int faults = 0;
    for (int64_t i = 0, page = kBase; i < 10'000; i++, page += stride) {
      if (fetched.count(page)) continue;
      faults++;
      Window w = p.on_fault(static_cast<PageIndex>(page));
      for (unsigned n = 1; n <= w.count; n++) EXPECT_TRUE(fetched.insert(w.from + w.stride * n).second);
      if (w.count) take_all(p, w);
    }
    EXPECT_LE(faults, 3 + 4 + 10'000 / 65 + 1) << stride;
  }
}

TEST(Prefetcher, AWindowThatEndedEarlyIsGrownFromThere) {
  Prefetcher p;
  Window w = confirm(p, kBase, 1);
  take_all(p, w);
  w = p.on_fault(after(w));
  take_all(p, w);
  w = p.on_fault(after(w));
  ASSERT_EQ(w.count, 16u);
  p.record_window(10, 10);  // there were no more frames
  w = p.on_fault(static_cast<PageIndex>(w.from + 11));
  EXPECT_EQ(w.count, 20u);
  p.record_window(1, 1);  // but not below the first window
  w = p.on_fault(static_cast<PageIndex>(w.from + 2));
  EXPECT_EQ(w.count, 2 * Prefetcher::kFirstWindow);
}

TEST(Prefetcher, AnEmptyWindowContinuesAtTheNextPage) {
  Prefetcher p;
  Window w = confirm(p, kBase, 3);
  p.record_window(0, 0);
  EXPECT_EQ(p.on_fault(static_cast<PageIndex>(w.from + 3)).count, 2 * Prefetcher::kFirstWindow);
}

TEST(Prefetcher, AStreamContinuesWithinTheSlackBeyondItsMarker) {
  for (int64_t stride : {1, -2}) {
    for (int64_t beyond : {-1, 0, 1, 5, 16, 17}) {
      Prefetcher p;
      Window w = confirm(p, kBase, stride);
      take_all(p, w);
      PageIndex page = after(w) + static_cast<PageIndex>(beyond * stride);
      Window next = p.on_fault(page);
      if (beyond < 0 || beyond > kSlack) {
        EXPECT_EQ(next.count, 0u) << beyond;
        continue;
      }
      EXPECT_EQ(next.count, 2 * w.count) << beyond;
      EXPECT_EQ(next.from, static_cast<int64_t>(page));  // the skipped pages are near already
    }
  }
}

TEST(Prefetcher, PagesBetweenTheStepsOfAStreamDoNotContinueIt) {
  Prefetcher p;
  Window w = confirm(p, kBase, 4);
  take_all(p, w);
  EXPECT_EQ(p.on_fault(after(w) + 1).count, 0u);
  EXPECT_EQ(p.on_fault(after(w) + 6).count, 0u);
  EXPECT_GT(p.on_fault(after(w) + 8).count, 0u);
}

TEST(Prefetcher, SeveralStreamsAreFollowedAtOnce) {
  Prefetcher p;
  std::vector<Window> windows(kStreams);
  std::vector<PageIndex> next(kStreams);
  auto stride_of = [](unsigned s) { return s % 3 == 0 ? -1 - int64_t{s} : 1 + int64_t{s}; };
  for (unsigned s = 0; s < kStreams; s++) next[s] = kBase * (s + 1);
  for (int fault = 0; fault < 3; fault++) {
    for (unsigned s = 0; s < kStreams; s++) {
      windows[s] = p.on_fault(next[s]);
      EXPECT_EQ(windows[s].count, fault < 2 ? 0u : 4u) << s;
      if (windows[s].count) take_all(p, windows[s]);
      next[s] += static_cast<PageIndex>(stride_of(s));
    }
  }
  for (unsigned round = 1; round < 6; round++) {
    for (unsigned s = 0; s < kStreams; s++) {
      windows[s] = p.on_fault(after(windows[s]));
      EXPECT_EQ(windows[s].stride, stride_of(s));
      EXPECT_EQ(windows[s].count, std::min(4u << round, 64u)) << s;
      take_all(p, windows[s]);
    }
  }
}

TEST(Prefetcher, TheLeastRecentlyUsedStreamIsReplaced) {
  for (unsigned others : {kStreams - 1, kStreams}) {
    Prefetcher p;
    Window w = confirm(p, kBase, 1);
    take_all(p, w);
    for (unsigned i = 0; i < others; i++) EXPECT_EQ(p.on_fault(kBase * (i + 2)).count, 0u);
    EXPECT_EQ(p.on_fault(after(w)).count, others < kStreams ? 2 * w.count : 0u) << others;
  }
}

TEST(Prefetcher, AStreamInUseIsNotReplaced) {
  Prefetcher p;
  Window w = confirm(p, kBase, 1);
  for (unsigned i = 0; i < 10 * kStreams; i++) {
    take_all(p, w);
    EXPECT_EQ(p.on_fault(kBase * (i + 2)).count, 0u);  // a page of no stream
    w = p.on_fault(after(w));
    ASSERT_GT(w.count, 0u) << i;
  }
}

// ---- What was used ----

TEST(Prefetcher, AContinuedStreamUsedWhatItsWindowFetched) {
  Prefetcher p;
  Window w = confirm(p, kBase, 1);
  EXPECT_EQ(p.used_window(), 0u);
  p.record_window(w.count, 3);  // one was near
  EXPECT_EQ(p.on_fault(kBase * 5).count, 0u);
  EXPECT_EQ(p.used_window(), 0u);  // a fault of another stream
  w = p.on_fault(after(w));
  EXPECT_EQ(p.used_window(), 3u);
  p.record_window(w.count, w.count);
  p.on_fault(after(w));
  EXPECT_EQ(p.used_window(), w.count);
  p.on_fault(kBase * 7);
  EXPECT_EQ(p.used_window(), 0u);
}

// Short runs of pages, none of which goes on: windows shrink, and soon hardly any is fetched.
TEST(Prefetcher, WindowsShrinkWhileWhatTheyFetchIsNotUsed) {
  Prefetcher p;
  auto fetched_by_runs = [&](unsigned runs, PageIndex base) {
    unsigned fetched = 0;
    for (unsigned i = 0; i < runs; i++) {
      Window w = confirm(p, base + i * 1000, 1);
      if (w.count) take_all(p, w);
      fetched += w.count;
    }
    return fetched;
  };
  fetched_by_runs(1000, kBase);
  EXPECT_LE(fetched_by_runs(160, 3 * kBase), 11 * Prefetcher::kFirstWindow);  // one run in sixteen
  // A stream that goes on gets large windows again.
  Window w = confirm(p, 5 * kBase, 1);
  PageIndex next = 5 * kBase + 3;
  for (int i = 0; i < 2000; i++) {
    if (w.count) {
      take_all(p, w);
      next = after(w);
    }
    w = p.on_fault(next++);
  }
  EXPECT_EQ(w.count, Prefetcher::kMaxWindow);
}

TEST(Prefetcher, PassedPagesLieBetweenTwoFaultsOfAStream) {
  for (int64_t stride : {1, -3}) {
    Prefetcher p;
    Window w = confirm(p, kBase, stride);
    EXPECT_EQ(p.passed().count, 0u);
    take_all(p, w);
    p.on_fault(after(w));
    EXPECT_EQ(p.passed().from, w.from);
    EXPECT_EQ(p.passed().stride, stride);
    EXPECT_EQ(p.passed().count, w.count);
    p.on_fault(kBase * 3);
    EXPECT_EQ(p.passed().count, 0u);
  }
}

TEST(Prefetcher, TheNextWindowBeginsWhereTheLastOneEnded) {
  for (int64_t stride : {1, -3}) {
    Prefetcher p;
    Window w = confirm(p, kBase, stride);
    take_all(p, w);
    Window next = p.next_window();
    EXPECT_EQ(next.from, w.from + stride * w.count);
    EXPECT_EQ(next.stride, stride);
    EXPECT_EQ(next.count, w.count);
  }
}

// A window is mapped, and the next one is in flight; the first page of the next one is the marker.
TEST(Prefetcher, AFaultOnTheMarkerStartsTheWindowAfterTheOneInFlight) {
  Prefetcher p;
  Window mapped = confirm(p, kBase, 1);
  take_all(p, mapped);
  Window ahead = p.next_window();
  PageIndex marker = static_cast<PageIndex>(ahead.from + 1);
  p.record_next_window(ahead.count, ahead.count, marker);

  Window next = p.on_fault(marker);
  EXPECT_EQ(p.used_window(), mapped.count);  // all of the mapped window was passed
  EXPECT_EQ(next.from, ahead.from + ahead.count);
  EXPECT_EQ(next.count, 2 * mapped.count);
  PageIndex second = static_cast<PageIndex>(next.from + 1);
  p.record_next_window(next.count, 5, second);

  EXPECT_EQ(p.on_fault(second).count, 4 * mapped.count);
  EXPECT_EQ(p.used_window(), ahead.count);
  p.record_next_window(0, 0, 0);
  p.on_fault(static_cast<PageIndex>(next.from + next.count + 1));
  EXPECT_EQ(p.used_window(), 5u);
}

TEST(Prefetcher, PagesInFlightAreUsedOnce) {
  Prefetcher p;
  Window w = confirm(p, kBase, 1);
  take_all(p, w);
  Window ahead = p.next_window();
  p.record_next_window(ahead.count, 3, static_cast<PageIndex>(ahead.from + 1));
  w = p.on_fault(static_cast<PageIndex>(ahead.from + 1));
  for (unsigned used : {3 + 2u, 2u, 2u}) {
    p.record_window(w.count, 2);
    w = p.on_fault(after(w));
    EXPECT_EQ(p.used_window(), used);
  }
}

TEST(Prefetcher, AMarkerWithinTheWindowIsReachedBeforeTheNextWindow) {
  Prefetcher p;
  Window mapped = confirm(p, kBase, 1);
  take_all(p, mapped);
  Window ahead = p.next_window();
  PageIndex marker = static_cast<PageIndex>(ahead.from + 3);  // the two before it were near
  p.record_next_window(ahead.count, 2, marker);
  Window next = p.on_fault(marker);
  EXPECT_EQ(next.from, ahead.from + ahead.count);
  EXPECT_GT(next.count, 0u);
}

TEST(Prefetcher, AWindowInFlightThatOthersMappedIsSkipped) {
  Prefetcher p;
  Window w = confirm(p, kBase, 1);
  while (w.count <= kSlack) {
    take_all(p, w);
    w = p.on_fault(after(w));
  }
  take_all(p, w);
  Window ahead = p.next_window();
  p.record_next_window(ahead.count, ahead.count, static_cast<PageIndex>(ahead.from + 1));
  // A background thread mapped all of it, marker included: the next fault is the page after it.
  Window next = p.on_fault(after(ahead));
  EXPECT_EQ(next.from, static_cast<int64_t>(after(ahead)));
  EXPECT_EQ(next.count, Prefetcher::kMaxWindow);
}

TEST(Prefetcher, WithNothingInFlightTheStreamContinuesAfterTheWindow) {
  Prefetcher p;
  Window mapped = confirm(p, kBase, 1);
  take_all(p, mapped);
  Window ahead = p.next_window();
  p.record_next_window(ahead.count, 0, 0);  // all were near, and there is no marker
  EXPECT_EQ(p.on_fault(0).count, 0u);
  EXPECT_EQ(p.on_fault(after(ahead)).count, 2 * mapped.count);
}

TEST(Prefetcher, AStreamMayRunDownToPageZero) {
  Prefetcher p;
  Window w = confirm(p, 4, -1);
  EXPECT_EQ(w.from, 2);
  EXPECT_EQ(w.stride, -1);
  p.record_window(2, 2);  // there is nothing below page 0
  for (PageIndex page : {PageIndex{0}, PageIndex{0}, PageIndex{1}, PageIndex{50}, PageIndex{100}}) p.on_fault(page);
  EXPECT_EQ(confirm(p, kBase, 1).count, Prefetcher::kFirstWindow);
}

}  // namespace
}  // namespace farside::pager
