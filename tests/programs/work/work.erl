#!/usr/bin/env escript
%% Processes that fill maps and tables of strings, and send sorted lists.
main(_) ->
    Self = self(),
    [spawn_link(fun() -> Self ! {Seed, words(Seed)} end) || Seed <- [1, 2, 3, 4]],
    Lists = [receive {Seed, List} -> List end || Seed <- [1, 2, 3, 4]],
    Table = ets:new(table, [set]),
    lists:foreach(fun(Word) -> ets:insert(Table, {Word, length(Word)}) end, lists:append(Lists)),
    io:format("~p ~p~n", [ets:info(Table, size), erlang:phash2(lists:sort(ets:tab2list(Table)))]).

words(Seed) ->
    lists:sort(["entry " ++ integer_to_list((I * 7919 + Seed) rem 1000003) || I <- lists:seq(1, 40000)]).
