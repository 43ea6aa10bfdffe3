// The figures and tables of five papers on far memory that report results (docs/references.md): what was measured
// there, what measures it here, and which ratios of the results stand beside theirs. One file for each paper.
#pragma once
#include <cmath>

#include "bench/runner/benchmark.h"

namespace farside::bench {

Suite papers_suite();
std::vector<std::string> figure_names();

namespace papers {

// One way of running a figure's workload. The command is words after `farside`, or an application of bench/apps.
// {a,b} in it stands for a command with each. Names in capitals are filled in: SIZE by the size of the data, TCP by the
// address of a memory server, OUT by a folder. The rows of its results have `name` as "way", and a or b as "run".
struct Way {
  const char *name, *command;
};

// Where something is to be measured, there is a way, and at least one ratio. Otherwise there is a reason.
struct Figure {
  const char *id, *measured, *stated;  // the workload and the numbers of the paper
  std::vector<Way> ways = {};
  std::vector<Target> ratios = {};  // "LABEL: text"; the limit is the paper's own number
  const char *differs = "", *reason = "";
};

std::vector<Figure> aifm();
std::vector<Figure> eden();
std::vector<Figure> mage();
std::vector<Figure> atlas();
std::vector<Figure> kona();
const std::vector<Figure>& figures();  // of all papers

// The paper's number. Where its text states none, or ours is of another workload, nothing stands beside ours.
inline Limit stated(double number, const char* unit = "x") { return at_least(number, unit); }
inline Limit unstated(const char* unit = "x") { return at_least(NAN, unit); }

// The commands that an entry {a,b} stands for, with a or b; "" and the command itself without one.
std::vector<std::pair<std::string, std::string>> expanded(const std::string& command);
// At spaces, but for those in '...'.
std::vector<std::string> words_of(const std::string& command);
// The document of a command as rows that Target can read.
nlohmann::json rows_of(const nlohmann::json& document);

}  // namespace papers
}  // namespace farside::bench
