// Far objects and containers: a map of sessions, each a far object, and a far list of events that each session owns.
// Only what is used is fetched, one object at a time.
//
//   farside run --local 8M -- ./objects
#include <farside/containers/hash_map.hpp>
#include <farside/containers/vector.hpp>
#include <farside/ptr.hpp>

#include <cstdio>
#include <vector>

struct Session {
  uint64_t user;
  uint64_t visits;
  char text[112];
};

struct Profile {
  uint64_t user;
  char picture[1024];
};

int main() {
  constexpr uint64_t kUsers = 20000, kVisits = 100000;
  farside::hash_map<uint64_t, Session> sessions;
  std::vector<farside::unique_ptr<Profile>> profiles;  // near pointers, far objects
  farside::vector<uint64_t> visits;                    // far elements
  for (uint64_t user = 0; user < kUsers; user++) {
    sessions.try_emplace(user, Session{user, 0, {}});
    profiles.push_back(farside::make_unique<Profile>(Profile{user, {}}));
  }

  for (uint64_t i = 0; i < kVisits; i++) {
    uint64_t user = i * i % kUsers;
    farside::deref_scope scope;  // what is dereferenced stays where it is until the scope ends
    sessions.get_mut(user, scope)->visits++;
    visits.push_back(profiles[user].deref(scope)->user);
  }

  uint64_t sum = 0, most = 0;
  visits.for_each([&](uint64_t user) { sum += user; });
  for (uint64_t user = 0; user < kUsers; user++) {
    farside::deref_scope scope;
    uint64_t count = sessions.get_mut(user, scope)->visits;
    if (count > most) most = count;
  }
  printf("%llu visits, at most %llu of one user, sum of users %llu\n", static_cast<unsigned long long>(kVisits),
         static_cast<unsigned long long>(most), static_cast<unsigned long long>(sum));
}
