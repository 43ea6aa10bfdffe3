# A repository of many versions: packed, checked, read. What is printed does not depend on how it was packed.
set -e
export GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
git init -q --bare repository
cd repository
git fast-import --quiet < "$INPUT/history"
git gc -q --aggressive --prune=now
git fsck --full --strict
git count-objects -v | grep -E '^(count|in-pack|packs|garbage)'
git log -p --stat --no-color main | sha256sum
git rev-list --objects --all | sort | sha256sum
git cat-file --batch-all-objects --batch | sha256sum
git archive main | sha256sum
