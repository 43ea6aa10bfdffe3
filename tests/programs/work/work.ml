(* A hash table of strings, and a sorted list of its keys. *)
let () =
  let table = Hashtbl.create 1000 in
  for i = 0 to 299_999 do
    Hashtbl.replace table (Printf.sprintf "entry %d" (i * 7919 mod 1000003)) (i, float_of_int i)
  done;
  let keys = List.sort compare (Hashtbl.fold (fun key _ keys -> key :: keys) table []) in
  let sum = List.fold_left (fun sum key -> (sum * 31 + fst (Hashtbl.find table key)) mod 1_000_000_007) 7 keys in
  Gc.compact ();
  Printf.printf "%d %d\n" (Hashtbl.length table) sum
