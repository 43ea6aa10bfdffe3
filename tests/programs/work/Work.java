import java.util.*;
import java.util.stream.*;

/** A map that is filled in rounds, so that the collector has work, and a parallel sort. */
public class Work {
  public static void main(String[] arguments) {
    Map<Integer, String> map = new HashMap<>();
    long sum = 0;
    for (int round = 0; round < 3; round++) {
      for (int i = 0; i < 300000; i++) map.put(i, "value " + i * 7L % 1000003 + round);
      for (var entry : map.entrySet()) sum = sum * 31 + entry.getValue().hashCode() + entry.getKey();
    }
    List<String> sorted = map.values().parallelStream().sorted().collect(Collectors.toList());
    System.out.println(map.size() + " " + sum + " " + sorted.get(12345) + " " + sorted.hashCode());
  }
}
