"""The task API: programs hand tasks over with a token, and read what became of them; docs/api.md.

operations   every route once: its words, its shapes, its scope; routes and OpenAPI are made of it     models    what comes and goes
desk         whose token it is, and whether it may     handlers, streams    what each route does     problems    errors as problem+json
reading      the ledger, in threads of its own     doors    what the handlers are given to act with     openapi, page    its description
"""
