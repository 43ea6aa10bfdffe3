#include "tools/top/screen.h"

#include <fmt/format.h>
#include <ncurses.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "base/clock.h"

namespace farside::top {
namespace {

constexpr const char* kKeys = "q quit  s servers  < > sort by  r reverse  / filter  arrows scroll";

// Restores the terminal however the function that has it returns.
class Terminal {
 public:
  Terminal() : screen_(newterm(nullptr, stdout, stdin)) {
    if (!screen_) return;
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
  }
  ~Terminal() {
    if (!screen_) return;
    endwin();
    delscreen(screen_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  bool works() const { return screen_ != nullptr; }

 private:
  SCREEN* screen_;
};

class LiveView {
 public:
  LiveView(View view, const std::string& servers, double interval)
      : view_(std::move(view)),
        servers_(servers),
        servers_shown_(!servers.empty()),
        interval_ms_(static_cast<int>(interval * 1000)) {}

  void run() {
    constexpr int kFirstMs = 250;  // until the first reports are there
    look();
    draw();
    next_ns_ = now_ns() + uint64_t{kFirstMs} * 1'000'000;
    while (handle(key())) {
      if (now_ns() >= next_ns_) look();
      draw();
    }
  }

 private:
  void look() {
    sampler_.look();
    if (servers_shown_) servers_.look();
    next_ns_ = now_ns() + static_cast<uint64_t>(interval_ms_) * 1'000'000;
  }

  // ERR when it is time for the next look.
  int key() const {
    uint64_t now = now_ns();
    timeout(next_ns_ > now ? static_cast<int>((next_ns_ - now) / 1'000'000) + 1 : 0);
    return getch();
  }

  bool handle(int key) {
    if (key == 'q') return false;
    if (key == 's') switch_table();
    if (key == 'r') view_.reversed = !view_.reversed;
    if (key == '<' || key == '>') change_sort(key == '>' ? 1 : sort_keys().size() - 1);
    if (key == '/') read_filter();
    if (key == KEY_DOWN) first_++;
    if (key == KEY_UP && first_ > 0) first_--;
    return true;
  }

  void switch_table() {
    servers_shown_ = !servers_shown_;
    first_ = 0;
    look();
  }

  void change_sort(size_t steps) {
    auto at = std::ranges::find(sort_keys(), view_.sort) - sort_keys().begin();
    view_.sort = sort_keys()[(static_cast<size_t>(at) + steps) % sort_keys().size()];
  }

  void read_filter() {
    char words[64] = "";
    timeout(-1);
    echo();
    curs_set(1);
    mvprintw(1, 0, "filter: ");
    clrtoeol();
    getnstr(words, sizeof words - 1);
    curs_set(0);
    noecho();
    view_.filter = words;
    first_ = 0;
  }

  void put(int line, const std::string& text) const {
    mvaddnstr(line, 0, text.c_str(), COLS);
    clrtoeol();
  }

  void draw() {
    erase();
    if (servers_shown_) draw_servers();
    else draw_programs();
    put(LINES - 1, kKeys);
    refresh();
  }

  void draw_servers() {
    const std::vector<ServerRow>& rows = servers_.rows();
    put(0, "farside top: memory servers");
    draw_table(to_text(rows), rows.size(), "name servers with --servers HOST:PORT, the address of their --metrics");
  }

  void draw_programs() {
    std::vector<Row> rows = arrange(sampler_.rows(), view_);
    put(0, summary_line(rows));
    put(1, fmt::format("sorted by {}{}{}", view_.sort, view_.reversed ? ", reversed" : "",
                       view_.filter.empty() ? "" : "; filter: " + view_.filter));
    draw_table(to_text(rows), rows.size(), "none of your processes runs under Farside");
  }

  // The first line is the head.
  void draw_table(const std::string& text, size_t rows, const char* without_rows) {
    constexpr int kTableLine = 3;
    first_ = std::min(first_, rows == 0 ? 0 : rows - 1);
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    attron(A_REVERSE);
    put(kTableLine - 1, line + std::string(static_cast<size_t>(COLS), ' '));
    attroff(A_REVERSE);
    for (size_t number = 0; std::getline(lines, line); number++) {
      int at = kTableLine + static_cast<int>(number - first_);
      if (number >= first_ && at < LINES - 1) put(at, line);
    }
    if (rows == 0) put(kTableLine, without_rows);
  }

  Sampler sampler_;
  View view_;
  ServerSampler servers_;
  bool servers_shown_;
  const int interval_ms_;
  uint64_t next_ns_ = 0;
  size_t first_ = 0;  // row on the screen
};

}  // namespace

Status show_live(View view, const std::string& servers, double interval) {
  Terminal terminal;
  if (!terminal.works()) {
    const char* type = getenv("TERM");
    return Status::error(ENOTTY, "the terminal type '{}' cannot show a live table; use --once or --json",
                         type ? type : "");
  }
  LiveView(std::move(view), servers, interval).run();
  return {};
}

}  // namespace farside::top
