package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"

	"sessiond/replay/jsonl"
)

// codes reads the codes that there are from the file that lists them.
func codes(t *testing.T) []jsonl.Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../jsonl/diagnostic.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []jsonl.Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); ok && id.Name == "Code" {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, jsonl.Code(code))
		}
		return true
	})
	return out
}

func TestSuggestion_EveryCode(t *testing.T) {
	all := codes(t)
	for _, c := range all {
		if Suggestion(c) == "" {
			t.Errorf("code %s has no suggestion", c)
		}
		if !KnownCode(c) {
			t.Errorf("code %s is not known", c)
		}
	}
	if len(all) != len(suggestions) {
		t.Errorf("got %d suggestions for %d codes", len(suggestions), len(all))
	}
	if KnownCode("no_such_code") {
		t.Error("no_such_code is known")
	}
}
