:- initialization(main, main).

main :-
    forall(between(1, 300000, I), add(I)),
    findall(Name-I, entry(Name, I), Pairs),
    msort(Pairs, Sorted),
    foldl([_-I, S0, S]>>(S is (S0 * 31 + I) mod 1000000007), Sorted, 7, Sum),
    length(Sorted, Length),
    format("~w ~w~n", [Length, Sum]).

add(I) :-
    Key is (I * 7919) mod 1000003,
    atom_concat(entry_, Key, Name),
    assertz(entry(Name, I)).
