using System;
using System.Collections.Generic;
using System.Threading.Tasks;

/// <summary>Fills dictionaries in parallel and sorts their keys.</summary>
class Work {
  static Dictionary<string, int[]> Fill(int seed) {
    var map = new Dictionary<string, int[]>();
    for (int i = 0; i < 150000; i++) map["entry " + (i * 7919L + seed) % 1000003] = new[] {i, seed, i ^ seed};
    return map;
  }

  static void Main() {
    var maps = new Dictionary<string, int[]>[4];
    Parallel.For(0, 4, seed => maps[seed] = Fill(seed));
    long sum = 7;
    foreach (var map in maps) {
      var keys = new List<string>(map.Keys);
      keys.Sort(string.CompareOrdinal);
      foreach (var key in keys) sum = (sum * 31 + map[key][2] + key.Length) % 1000000007;
    }
    Console.WriteLine(sum);
  }
}
