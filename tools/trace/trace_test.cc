#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>

#include "command/command.h"
#include "tools/trace/outputs.h"
#include "tools/trace/perf_map.h"
#include "tools/trace/python.h"
#include "tools/trace/recording.h"
#include "tools/trace/trace.h"

namespace farside::trace {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 40;

bool nothing_near(int64_t) { return false; }

// The pattern of faults at these offsets; only the faulting pages are near.
Classified pattern_of(const std::vector<uint64_t>& offsets) {
  TracePattern pattern;
  for (uint64_t offset : offsets) note_access(pattern, kBase + offset, nothing_near);
  Steps steps;
  steps.add(pattern);
  return classify(steps);
}

std::vector<uint64_t> run_of(uint64_t count, uint64_t stride, uint64_t first = 0) {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < count; i++) offsets.push_back(first + i * stride);
  return offsets;
}

// ---- Patterns ----

TEST(TracePatternTest, StepsOfOnePageAreSequential) {
  EXPECT_EQ(pattern_of(run_of(100, kPageSize)).access, Access::kSequential);
  EXPECT_EQ(pattern_of(run_of(100, kPageSize - 24, 96)).access, Access::kSequential);  // objects across pages
  std::vector<uint64_t> backwards = run_of(100, kPageSize);
  std::reverse(backwards.begin(), backwards.end());
  EXPECT_EQ(pattern_of(backwards).access, Access::kBackwards);
}

TEST(TracePatternTest, EqualStepsAreStrided) {
  for (uint64_t stride : {2 * kPageSize, 5 * kPageSize, 6000ul, 1000 * kPageSize + 8}) {
    Classified pattern = pattern_of(run_of(100, stride));
    EXPECT_EQ(pattern.access, Access::kStrided) << stride;
    EXPECT_EQ(pattern.stride, static_cast<int64_t>(stride));
  }
}

TEST(TracePatternTest, AlternatingStreamsAreSequential) {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < 50; i++) {
    for (uint64_t stream = 0; stream < 4; stream++) offsets.push_back(stream * kGiB + i * kPageSize);
  }
  EXPECT_EQ(pattern_of(offsets).access, Access::kSequential);
}

TEST(TracePatternTest, OthersAreRandomOrTooFew) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> offsets;
  for (int i = 0; i < 1000; i++) offsets.push_back(random() % kGiB);
  EXPECT_EQ(pattern_of(offsets).access, Access::kRandom);
  EXPECT_EQ(pattern_of(run_of(4, kPageSize)).access, Access::kFew);
  EXPECT_EQ(pattern_of(run_of(100, 16)).access, Access::kSame);
}

// The prefetcher fetches 64 pages beyond each fault: the pages between two faults are near, at the stride of the
// stream.
TEST(TracePatternTest, PrefetchedWindowsDoNotHideStreams) {
  for (int64_t stride : {1, -1, 3}) {
    TracePattern pattern;
    int64_t page = kBase / kPageSize;
    for (int i = 0; i < 50; i++) {
      auto fetched = [&](int64_t p) { return (p - page) % stride == 0; };
      note_access(pattern, static_cast<uint64_t>(page) * kPageSize, fetched);
      page += stride * (i < 3 ? 1 : 65);
    }
    Steps steps;
    steps.add(pattern);
    Classified classified = classify(steps);
    EXPECT_EQ(classified.access, stride == 1    ? Access::kSequential
                                 : stride == -1 ? Access::kBackwards
                                                : Access::kStrided);
    EXPECT_EQ(classified.stride, stride == 3 ? 3 * static_cast<int64_t>(kPageSize) : 0);
  }
}

TEST(TracePatternTest, SmallStepsInBothDirectionsAreRandom) {
  std::mt19937_64 random(1);
  TracePattern pattern;
  for (int i = 0; i < 1000; i++)
    note_access(pattern, kBase + random() % (64 * kPageSize), [](int64_t) { return true; });
  pattern.chase_checked = pattern.chase_found = 100;
  Steps steps;
  steps.add(pattern);
  EXPECT_EQ(steps.sequential + steps.strided, 0U);
  EXPECT_EQ(steps.chase_found, 100U);
}

TEST(TracePatternTest, PointersToTheNextPageMakeAChase) {
  Steps steps;
  steps.random = 1000;
  steps.chase_checked = 250;
  steps.chase_found = 200;
  EXPECT_EQ(classify(steps).access, Access::kChase);
  steps.chase_found = 5;
  EXPECT_EQ(classify(steps).access, Access::kRandom);
  steps.chase_checked = steps.chase_found = 0;
  EXPECT_EQ(classify(steps).access, Access::kRandom);
}

TEST(TraceHintTest, EachPatternHasItsHint) {
  constexpr KindCounts kReads = {100, 0, 0, 0}, kWrites = {10, 30, 40, 20};
  constexpr DataSize kSmall = {kMiB, 8 * kMiB}, kBig = {64 * kMiB, 8 * kMiB};
  EXPECT_EQ(hint_line({Access::kSequential, 0}, kReads, kSmall),
            "farside_hint(ADDRESS, BYTES, FARSIDE_READ | FARSIDE_SEQ | FARSIDE_AHEAD(32));");
  EXPECT_EQ(hint_line({Access::kBackwards, 0}, kWrites, kSmall),
            "farside_hint(ADDRESS, BYTES, FARSIDE_WRITE | FARSIDE_SEQ | FARSIDE_BEHIND(32));");
  EXPECT_EQ(hint_line({Access::kStrided, 20480}, kReads, kSmall),
            "farside_hint_read(ADDRESS, BYTES);  // moves by 20480 bytes: ADDRESS+20480 is next");
  EXPECT_EQ(hint_line({Access::kRandom, 0}, kReads, kSmall), "farside_hint_read(ADDRESS, BYTES);");
  EXPECT_EQ(hint_line({Access::kRandom, 0}, kWrites, kBig),
            "farside_hint(ADDRESS, BYTES, FARSIDE_WRITE | FARSIDE_PRIORITY(2));");
  EXPECT_EQ(hint_line({Access::kRandom, 0}, {100000, 0, 0, 0}, kBig),
            "farside_hint_read(ADDRESS, BYTES);");  // used many times
  EXPECT_TRUE(hint_line({Access::kChase, 0}, kReads, kBig).starts_with("farside_hint_read(ADDRESS, BYTES);  // "));
}

// ---- Places ----

TEST(TracePlaceTest, TheInnermostLineOfTheProgramIsThePlace) {
  Frame copy = {"memcpy", "string/memcpy.S", 12, "/usr/lib/libc.so.6", false};
  Frame push = {"std::vector<int>::push_back(int)", "/usr/include/c++/12/bits/stl_vector.h", 99, "/opt/job", true};
  Frame work = {"work()", "/src/job.cc", 10, "/opt/job", false};
  Frame bare = {"plugin+0x12", "", 0, "/opt/plugin.so", false};
  Frame main = {"main", "/src/job.cc", 50, "/opt/job", false};
  EXPECT_EQ(find_place({copy, push, work, main}, "/opt/job"), 2U);
  EXPECT_EQ(find_place({work, main}, "/opt/job"), 0U);
  EXPECT_EQ(find_place({copy, bare}, "/opt/job"), 1U);  // no frame has a line
  EXPECT_EQ(find_place({copy, copy}, "/opt/job"), 0U);
  Frame tool = {"run+0x5", "", 0, "/usr/bin/tool", false};
  EXPECT_EQ(find_place({copy, tool}, "/usr/bin/tool"), 1U);  // the program itself may be in a system folder
}

TEST(TracePlaceTest, NamesAreShortened) {
  EXPECT_EQ(brief_name("main"), "main");
  EXPECT_EQ(brief_name("a::b(int, char const*)"), "a::b");
  EXPECT_EQ(brief_name("void std::sort<std::less<int> >(int*, int*)"), "std::sort<..>");
  EXPECT_EQ(brief_name("(anonymous namespace)::f(int)"), "(anonymous namespace)::f");
  EXPECT_EQ(brief_name("main::{lambda(int)#1}::operator()(int) const"), "main::{..}::operator()");
  EXPECT_EQ(brief_name("X::operator<(X const&) const"), "X::operator<");
  EXPECT_EQ(short_text({"f(int)", "/src/a.cc", 7, "/opt/job", false}), "f (a.cc:7)");
  EXPECT_EQ(short_text({"f+0x10", "", 0, "/opt/job", false}), "f+0x10 (job)");
}

// ---- Code that was generated at run time ----

TEST(TracePerfMapTest, TheLaterEntryOfAnAddressIsUsed) {
  PerfMap map(std::istringstream("7f00 100 JS:^old /src/a.js:1:1\n7f00 80 JS:*pick /src/job.js:12:3\n9000 10 stub\n"));
  EXPECT_EQ(map.find(0x7f10, "/usr/bin/node")->function, "pick");
  EXPECT_EQ(map.find(0x7f80, "/usr/bin/node")->function, "old");
  EXPECT_FALSE(map.find(0x8000, "/usr/bin/node"));
}

TEST(TracePerfMapTest, FunctionsOfTheProgramAndOfItsRuntime) {
  auto frame = [](const char* name) { return frame_of_generated(name, "/usr/bin/node"); };
  EXPECT_EQ(frame("JS:*pick /src/a b.js:12:3"),
            (Frame{"pick", "/src/a b.js", 12, "/usr/bin/node", false, Language::kGenerated}));
  EXPECT_EQ(short_text(frame("LazyCompile:~ job.js:7:1")), "anonymous (job.js:7)");
  EXPECT_EQ(frame("JS:^emit node:events:466:44").module, "");
  EXPECT_EQ(frame("Builtin:ArrayMap").module, "");
  EXPECT_EQ(short_text(frame("int Job.pick(int[], int)")), "Job.pick (node)");
  EXPECT_EQ(frame("java.lang.Object java.util.HashMap.get(java.lang.Object)").module, "");
  EXPECT_EQ(frame("StubRoutines (1)").module, "");
}

// ---- Python ----

// Of a function from line 10 on: line 10, 4 bytes; line 12 with columns, 2; line 12, 16, in the short form; none, 2;
// line 11, 2; line 81, 2, in the long form.
TEST(TracePythonTest, LinesOfInstructions) {
  const char table[] =
      "\x81\x30"
      "\xe0\x01\x02"
      "\x87\x11"
      "\xf8"
      "\xe8\x03"
      "\xf0\x4c\x02\x02\x01\x01";
  std::string_view lines(table, sizeof table - 1);
  const std::map<uint32_t, int> wanted = {{0, 10}, {2, 10}, {4, 12}, {6, 12}, {20, 12}, {22, 0}, {24, 11}, {26, 81}};
  for (auto [instruction, line] : wanted) EXPECT_EQ(python_line(lines, 10, instruction), line) << instruction;
  EXPECT_EQ(python_line(lines, 10, 28), 0);
  EXPECT_EQ(python_line(lines.substr(0, lines.size() - 5), 10, 40), 0);  // cut short
}

TEST(TracePythonTest, FramesReplaceThoseOfTheInterpreter) {
  Frame copy = {"memcpy", "", 0, "/lib/libc.so.6", false}, start = {"main+0x5", "", 0, "/usr/bin/python3", false};
  Frame inside = {"list_resize+0x12", "Objects/list.c", 7, "/usr/bin/python3", false};
  Frame loop = {"_PyEval_EvalFrameDefault+0x99", "", 0, "/usr/bin/python3", false};
  Frame extension = {"sum+0x1", "", 0, "/usr/lib/sum.so", false};
  auto python = [](const char* name, bool is_entry) {
    return PythonFrame{{name, "/job.py", 3, "/job.py", false, Language::kPython}, is_entry};
  };
  std::vector<PythonFrame> frames = {python("a", false), python("b", true), python("c", true), python("d", true)};
  auto names = [&](const std::vector<Frame>& native) {
    std::string text;
    for (const Frame& frame : merge_python(native, frames)) text += frame.function + " ";
    return text;
  };
  EXPECT_EQ(names({inside, inside, loop, inside, loop, start, start}), "list_resize a b c d ");
  EXPECT_EQ(names({copy, inside, loop, extension, inside, loop, loop, start}), "memcpy a b sum+0x1 c d ");
  EXPECT_EQ(names({}), "a b c d ");
  EXPECT_EQ(merge_python({inside, loop}, frames)[0].line, 0);
  EXPECT_EQ(merge_python({copy, inside}, {}).size(), 2U);
  Frame end = {"Py_FinalizeEx+0x8", "", 0, "/usr/bin/python3", false};
  EXPECT_EQ(merge_python({copy, inside, end, start}, {})[0].function, "Py_FinalizeEx");
}

TEST(TracePythonTest, ThePlaceIsTheUsersLine) {
  auto python = [](const char* name, const char* file) { return Frame{name, file, 3, file, false, Language::kPython}; };
  Frame inside = {"list_resize", "", 0, "/usr/bin/python3", false};
  Frame load = python("load", "/usr/lib/python3.11/json/decoder.py"), job = python("work", "job.py");
  Frame mean = python("mean", "/venv/lib/python3.13/site-packages/numpy/core/_methods.py");
  Frame own = {"step", "/src/step.c", 5, "/src/step.so", false};
  EXPECT_EQ(find_place({inside, load, mean, job}, "/usr/bin/python3"), 3U);
  EXPECT_EQ(find_place({inside, load}, "/usr/bin/python3"), 1U);
  EXPECT_EQ(find_place({own, job}, "/usr/bin/python3"), 0U);  // an extension of the user's
  EXPECT_EQ(short_text(load), "load (json/decoder.py:3)");
  EXPECT_EQ(short_text(mean), "mean (numpy/core/_methods.py:3)");
  EXPECT_EQ(short_text(python("<module>", "<string>")), "<module> (<string>:3)");
}

__attribute__((noinline)) int known_function() {
  asm volatile("");
  return __LINE__;
}

TEST(TraceSymbolsTest, OwnCodeIsNamed) {
  Process process;
  process.header.pid = static_cast<uint32_t>(getpid());
  std::stringstream maps;
  maps << std::ifstream("/proc/self/maps").rdbuf();
  process.maps = maps.str();
  auto symbols = Symbols::open(process);
  ASSERT_TRUE(symbols.ok()) << symbols.status().text();
  std::vector<Frame> frames = (*symbols)->frames_at(reinterpret_cast<uint64_t>(&known_function), false);
  ASSERT_EQ(frames.size(), 1U);
  EXPECT_NE(frames[0].function.find("known_function"), std::string::npos);
  EXPECT_TRUE(frames[0].file.ends_with("trace_test.cc"));
  EXPECT_NEAR(frames[0].line, known_function(), 3);
  EXPECT_EQ((*symbols)->frames_at(0x10, false).at(0).function, "?");
}

// ---- The recorded file ----

class TraceRecordingTest : public testing::Test {
 protected:
  TraceRecordingTest() { close(mkstemp(path_)); }
  ~TraceRecordingTest() override { unlink(path_); }

  static std::string block(uint64_t entries) {
    TraceHeader header = {};
    header.magic = kTraceMagic;
    header.version = kTraceVersion;
    header.entries = entries;
    header.stacks = 1;
    header.stack_bytes = 16;
    header.maps_bytes = 4;
    TraceStack stack = {};
    stack.key = 7;
    stack.offset = 8;
    stack.bytes = 100;  // beyond the end
    std::string text(reinterpret_cast<char*>(&header), sizeof header);
    text += std::string(entries * sizeof(TraceEntry), '\0');
    text += std::string(reinterpret_cast<char*>(&stack), sizeof stack);
    return text + std::string(16, 's') + "maps";
  }
  Result<Recording> read(const std::string& content) {
    std::ofstream(path_, std::ios::binary) << content;
    return read_recording(path_);
  }

  char path_[32] = "/tmp/farside-trace-XXXXXX";
};

TEST_F(TraceRecordingTest, BlocksAreReadOneAfterTheOther) {
  Result<Recording> recording = read(block(2) + block(0));
  ASSERT_TRUE(recording.ok());
  EXPECT_FALSE(recording->cut_short);
  ASSERT_EQ(recording->processes.size(), 2U);
  EXPECT_EQ(recording->processes[0].entries.size(), 2U);
  EXPECT_EQ(recording->processes[0].stacks.at(7).bytes, 0U);  // content beyond the stack bytes is rejected
  EXPECT_EQ(recording->processes[1].maps, "maps");
}

TEST_F(TraceRecordingTest, IncompleteBlocksAreOmitted) {
  Result<Recording> recording = read(block(1) + block(1).substr(0, 200));
  ASSERT_TRUE(recording.ok());
  EXPECT_TRUE(recording->cut_short);
  EXPECT_EQ(recording->processes.size(), 1U);
  EXPECT_EQ(read("").status().code(), ENOENT);
  EXPECT_EQ(
      read("this is no trace, whatever its length may be, and its first bytes already show it...").status().code(),
      ENOENT);
}

// ---- Outputs ----

Place make_place(const char* function, int line, KindCounts faults) {
  Place place;
  place.where = {function, "/src/job.cc", line, "/opt/job", false};
  place.faults = faults;
  place.pattern = {Access::kSequential, 0};
  place.data = {{"main (job.cc:3)", total_of(faults), 64 * kMiB}};
  place.hint = "farside_hint_read(ADDRESS, BYTES);";
  return place;
}

Analysis example() {
  Analysis analysis;
  analysis.places = {make_place("scan(int)", 10, {600, 0, 0, 0}), make_place("fill<int>()", 20, {0, 100, 50, 200}),
                     make_place("rest", 30, {50, 0, 0, 0})};
  analysis.places[0].inner = "memcpy of libc.so.6";
  analysis.stacks = {{{"job", "main (job.cc:3)", "scan (job.cc:10)"}, {600, 0, 0, 0}},
                     {{"job", "main (job.cc:4)", "fill<..> (job.cc:20)"}, {0, 100, 50, 200}}};
  analysis.faults = 1000;
  analysis.processes = analysis.threads = 1;
  analysis.lines_known = true;
  return analysis;
}

TEST(TraceOutputTest, TheTableEndsAtTheRequestedCoverage) {
  std::string table = to_table(example(), 95, "out");
  EXPECT_NE(table.find(" 60.0%  60.0%  100%     -     -     -  scan (job.cc:10), in memcpy of libc.so.6\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find(" 35.0%  95.0%     -   29%   14%   57%  fill<..> (job.cc:20)\n"), std::string::npos) << table;
  EXPECT_NE(table.find("sequential; data of main (job.cc:3), 64.0 MiB\n"), std::string::npos) << table;
  EXPECT_EQ(table.find("rest"), std::string::npos);
  EXPECT_TRUE(table.ends_with(
      "farside: 2 of 3 places have 95.0 % of the faults; flame.svg, folded.txt and trace.json are in out\n"))
      << table;
  EXPECT_EQ(example().places_for(100), 3U);
  EXPECT_EQ(example().places_for(1), 1U);
}

TEST(TraceOutputTest, TheTableReportsWhatIsMissing) {
  Analysis analysis = example();
  analysis.dropped = 250;
  analysis.lines_known = false;
  std::string table = to_table(analysis, 95, "out");
  EXPECT_NE(table.find("farside: 1250 faults"), std::string::npos) << table;
  EXPECT_NE(table.find(" 48.0%  48.0%  100%     -     -     -  scan"), std::string::npos) << table;  // of all 1250
  EXPECT_NE(table.find(" 20.0%  of unknown place: the recorder had no room"), std::string::npos) << table;
  EXPECT_NE(table.find("build it with -g"), std::string::npos);
  EXPECT_EQ(to_table({}, 95, "out"),
            "farside: no fault was recorded: the program's memory stayed near; lower --local\n");
}

TEST(TraceOutputTest, TenPlacesAreShownByDefault) {
  Analysis analysis;
  for (int line = 1; line <= 100; line++) analysis.places.push_back(make_place("f", line, {10, 0, 0, 0}));
  analysis.faults = 1000;
  EXPECT_EQ(analysis.places_shown(Analysis::kTenPlaces), 10U);
  EXPECT_EQ(analysis.places_shown(50), 50U);
  EXPECT_NE(to_table(analysis, Analysis::kTenPlaces, "out").find("10 of 100 places have 10.0 % of the faults"),
            std::string::npos);
}

TEST(TraceOutputTest, RareStacksAreAddedUp) {
  std::vector<FoldedStack> stacks = {
      {{"job", "rare"}, {1, 0, 0, 0}}, {{"job", "often"}, {90, 0, 0, 0}}, {{"job", "seldom"}, {0, 9, 0, 0}}};
  merge_rare_stacks(&stacks, 1000);
  ASSERT_EQ(stacks.size(), 3U);
  EXPECT_EQ(stacks[0].frames[1], "often");
  merge_rare_stacks(&stacks, 10);
  ASSERT_EQ(stacks.size(), 2U);
  EXPECT_EQ(stacks[1].frames, (std::vector<std::string>{"job", kRareStacks}));
  EXPECT_EQ(stacks[1].faults, (KindCounts{1, 9, 0, 0}));
}

TEST(TraceOutputTest, HintsAreEvaluated) {
  Analysis analysis = example();
  analysis.hints = {{"scan (job.cc:9)", 100, 40}, {"fill (job.cc:18)", 70, 0}, {"other (job.cc:90)", 0, 0}};
  analysis.places[0].hinted_at = 9;
  std::string table = to_table(analysis, 95, "out");
  EXPECT_NE(table.find("hinted in line 9, but still faults\n"), std::string::npos) << table;
  EXPECT_NE(table.find("no hint yet: farside_hint_read(ADDRESS, BYTES);\n"), std::string::npos) << table;
  EXPECT_NE(table.find("the hint at fill (job.cc:18) never caused a fetch: in all 70 calls the pages were near\n"),
            std::string::npos)
      << table;
  EXPECT_NE(table.find("the hint at other (job.cc:90) never caused a fetch, or was never executed\n"),
            std::string::npos)
      << table;
  EXPECT_EQ(table.find("the hint at scan"), std::string::npos);
}

TEST(TraceOutputTest, FoldedStacksHaveALineForEachKind) {
  EXPECT_EQ(to_folded(example()),
            "job;main (job.cc:3);scan (job.cc:10);[read] 600\n"
            "job;main (job.cc:4);fill<..> (job.cc:20);[write] 100\n"
            "job;main (job.cc:4);fill<..> (job.cc:20);[protection] 50\n"
            "job;main (job.cc:4);fill<..> (job.cc:20);[allocation] 200\n");
}

TEST(TraceOutputTest, TheFlameGraphIsDrawnToScale) {
  std::string svg = to_flame_graph(example(), "sort <in");
  EXPECT_NE(svg.find("Faults of sort &lt;in by call stack ("), std::string::npos);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"")) << svg.substr(0, 100);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  // 600 of 950 faults in stacks, of 1180 pixels.
  EXPECT_NE(svg.find("data-w=\"745.263\" data-l=\"3\"><title>scan (job.cc:10)\n600 faults, 63.2 %: 600 read</title>"),
            std::string::npos)
      << svg;
  EXPECT_NE(svg.find("100 write 50 protection 200 allocation"), std::string::npos);
  EXPECT_NE(svg.find("fill&lt;..&gt; (job.cc:20)"), std::string::npos);
  EXPECT_EQ(svg.find("fill<..>"), std::string::npos);  // would end the element
  EXPECT_NE(svg.find("<script><![CDATA["), std::string::npos);
  EXPECT_FALSE(to_flame_graph({}, "sort").empty());
}

TEST(TraceOutputTest, JsonHasAllPlaces) {
  nlohmann::json json = to_json(example(), {"job", "x"}, 95);
  EXPECT_EQ(json["faults"], 1000);
  EXPECT_EQ(json["places_shown"], 2);
  ASSERT_EQ(json["places"].size(), 3U);
  EXPECT_EQ(json["places"][0]["line"], 10);
  EXPECT_EQ(json["places"][1]["kinds"]["protection"], 50);
  EXPECT_EQ(json["places"][0]["pattern"]["name"], "sequential");
  EXPECT_TRUE(json["places"][0]["hinted_at"].is_null());
}

TEST(TraceCommandTest, HelpHasExamplesAndMistakesAreOneLine) {
  auto trace = [](std::vector<const char*> line) {
    line.insert(line.begin(), "farside-trace");
    return run_trace(static_cast<int>(line.size()), line.data());
  };
  testing::internal::CaptureStdout();
  EXPECT_EQ(trace({"--help"}), 0);
  fflush(stdout);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("Examples:\n  farside trace"), std::string::npos);
  for (const std::vector<const char*>& line :
       {std::vector<const char*>{}, {"--fault=handler", "--", "true"}, {"--coverage", "0", "--", "true"}}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(trace(line), kExitUsage);
    std::string error = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(error.starts_with("farside: error: ") && error.find('\n') == error.size() - 1) << error;
  }
}

}  // namespace
}  // namespace farside::trace
