// Command supply tells what the two programs are made of: docs/licenses.md, the licences of everything that go.mod
// requires, and an SBOM for each program (CycloneDX), read out of the program itself.
//
//	go run ./test/supply licenses docs/licenses.md
//	go run ./test/supply sbom build/sbom build/bin/mirror-sidecar build/bin/kafka-cluster-mirrors
package main
