// The flame graph: a tree of call stacks, drawn from the bottom upwards.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/svg.h"
#include "tools/trace/outputs.h"

namespace farside::trace {
namespace {

constexpr double kWidth = 1200, kMargin = 10, kRow = 17, kHead = 60;
constexpr double kLetter = 6.6;    // width of a character, approximately
constexpr double kMinWidth = 0.5;  // narrower frames are not drawn
constexpr const char* kColours[kTraceKinds] = {"#6ba3dd", "#e0645c", "#b9c94a", "#b0b0b0"};

struct Node {
  KindCounts faults = {};
  std::map<std::string, Node> children;
};

Node make_tree(const Analysis& analysis) {
  Node root;
  for (const FoldedStack& stack : analysis.stacks) {
    Node* node = &root;
    auto add = [&](Node* to) {
      for (unsigned kind = 0; kind < kTraceKinds; kind++) to->faults[kind] += stack.faults[kind];
    };
    add(node);
    for (const std::string& frame : stack.frames) add(node = &node->children[frame]);
  }
  return root;
}

// Of what is drawn: nodes with at least so many faults.
size_t depth_of(const Node& node, double least) {
  size_t deepest = 0;
  for (auto& [name, child] : node.children) {
    if (static_cast<double>(total_of(child.faults)) >= least) deepest = std::max(deepest, depth_of(child, least));
  }
  return deepest + 1;
}

std::string fit(const std::string& text, double width) {
  auto room = static_cast<size_t>(std::max(0.0, (width - 6) / kLetter));
  return room < 4 && text.size() > room ? "" : shorten(text, room, "..");
}

class Drawing {
 public:
  explicit Drawing(const Node& root)
      : all_(total_of(root.faults)),
        height_(kHead + kMargin +
                kRow * static_cast<double>(depth_of(root, kMinWidth / kPlot * static_cast<double>(all_)))) {
    draw("all faults", root, kMargin, 0);
  }
  double height() const { return height_; }
  const std::string& text() const { return text_; }

 private:
  static constexpr double kPlot = kWidth - 2 * kMargin;

  std::string title(const std::string& name, const Node& node) const {
    uint64_t faults = total_of(node.faults);
    std::string text = fmt::format("{}\n{} faults, {:.1f} %:", name, faults,
                                   100.0 * static_cast<double>(faults) / static_cast<double>(all_));
    for (unsigned kind = 0; kind < kTraceKinds; kind++) {
      if (node.faults[kind]) text += fmt::format(" {} {}", node.faults[kind], kKindNames[kind]);
    }
    return text;
  }

  // A frame shows the colours of its kinds side by side, so that a mix is visible at every level.
  void draw(const std::string& name, const Node& node, double x, size_t level) {
    double width = scale(total_of(node.faults));
    if (width < kMinWidth) return;
    double y = height_ - kMargin - static_cast<double>(level + 1) * kRow;
    text_ += fmt::format("<g class=\"f\" data-x=\"{:.3f}\" data-w=\"{:.3f}\" data-l=\"{}\"><title>{}</title>", x, width,
                         level, escape_svg(title(name, node)));
    double at = x;
    for (unsigned kind = 0; kind < kTraceKinds; kind++) {
      double part = scale(node.faults[kind]);
      if (part > 0) {
        text_ += fmt::format("<rect x=\"{:.3f}\" y=\"{:.1f}\" width=\"{:.3f}\" height=\"{:.1f}\" fill=\"{}\"/>", at, y,
                             part, kRow - 1, kColours[kind]);
      }
      at += part;
    }
    text_ += fmt::format("<text x=\"{:.3f}\" y=\"{:.1f}\" data-t=\"{}\">{}</text></g>\n", x + 3, y + 12,
                         escape_svg(name), escape_svg(fit(name, width)));
    for (auto& [child_name, child] : node.children) {
      draw(child_name, child, x, level + 1);
      x += scale(total_of(child.faults));
    }
  }

  double scale(uint64_t faults) const {
    return all_ == 0 ? 0 : kPlot * static_cast<double>(faults) / static_cast<double>(all_);
  }

  uint64_t all_;
  double height_;
  std::string text_;
};

std::string legend() {
  std::string text;
  double x = kMargin;
  for (unsigned kind = 0; kind < kTraceKinds; kind++) {
    text += fmt::format(
        "<rect x=\"{0}\" y=\"32\" width=\"12\" height=\"12\" fill=\"{1}\"/><text x=\"{2}\" y=\"42\">{3}</text>\n", x,
        kColours[kind], x + 17, kKindNames[kind]);
    x += 110;
  }
  return text + fmt::format("<text id=\"reset\" x=\"{}\" y=\"42\">show all</text>\n", x);
}

// A click zooms: the frame gets the full width, frames above and below it are stretched, others are hidden. Each shape
// keeps its original position in its properties.
constexpr const char* kScript = R"(
var frames = Array.from(document.querySelectorAll('g.f')), left = 10, plot = 1180;
function number(e, name) { return parseFloat(e.getAttribute(name)); }
frames.forEach(function (g) {
  g.parts = Array.from(g.querySelectorAll('rect')).map(function (r) { return {r: r, x: number(r, 'x'), w: number(r, 'width')}; });
  g.x = number(g, 'data-x'); g.w = number(g, 'data-w'); g.label = g.querySelector('text');
  g.addEventListener('click', function () { zoom(g.x, g.w); });
});
function zoom(x, w) {
  var f = plot / w;
  frames.forEach(function (g) {
    var over = g.x < x + w - 1e-6 && g.x + g.w > x + 1e-6;
    g.style.display = over ? '' : 'none';
    if (!over) return;
    var begin = Math.max(left, left + (g.x - x) * f), end = Math.min(left + plot, left + (g.x + g.w - x) * f);
    g.parts.forEach(function (p) {
      var a = Math.max(left, left + (p.x - x) * f), b = Math.min(left + plot, left + (p.x + p.w - x) * f);
      p.r.setAttribute('x', a); p.r.setAttribute('width', Math.max(0, b - a));
    });
    var name = g.label.getAttribute('data-t'), room = Math.floor((end - begin - 6) / 6.6);
    g.label.setAttribute('x', begin + 3);
    g.label.textContent = name.length <= room ? name : room < 4 ? '' : name.slice(0, room - 2) + '..';
  });
}
document.getElementById('reset').addEventListener('click', function () { zoom(left, plot); });
)";

}  // namespace

std::string to_flame_graph(const Analysis& analysis, const std::string& command) {
  constexpr double kCommandWidth = 600;
  Drawing drawing(make_tree(analysis));
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1:.0f}\" width=\"{0}\" height=\"{1:.0f}\">\n"
      "<style>text {{ font: 11px monospace; pointer-events: none }} g.f {{ cursor: pointer }} g.f:hover rect {{ "
      "opacity: 0.8 }} "
      "#reset {{ cursor: pointer; pointer-events: auto; text-decoration: underline }}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"{2}\" y=\"20\" style=\"font-size: 14px\">Faults of {4} by call stack ({3} in all)</text>\n",
      kWidth, drawing.height(), kMargin, analysis.faults, escape_svg(fit(command, kCommandWidth)));
  return text + legend() + drawing.text() + "<script><![CDATA[" + kScript + "]]></script>\n</svg>\n";
}

}  // namespace farside::trace
