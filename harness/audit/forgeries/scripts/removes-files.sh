# tries: the working directory is empty, for a verifier that checks each file that it finds
find . -mindepth 1 -not -path './.git' -not -path './.git/*' -delete
