"""Translates messages of the C library, the shell and R back to English, which the families read.

The phrases are their own translations. Those of the C library count only after a colon, or in a shell's message about a child.
"""

from __future__ import annotations

import re

from probing_cluster.core import sanitize
from probing_cluster.core.sanitize import literals
from probing_cluster.evidence import message_catalogues

_ERRORS = {
    "No space left on device": (
        "No resta espai al dispositiu", "Na zařízení není volné místo", "Ikke mere plads på enheden",
        "Auf dem Gerät ist kein Speicherplatz mehr verfügbar", "No queda espacio en el dispositivo",
        "Laitteella ei ole tilaa jäljellä", "Aucun espace disponible sur le périphérique",
        "Nincs több hely a lemezen", "Spazio esaurito sul device", "デバイスに空き領域がありません", "장치에 남은 공간이 없음",
        "Ikke mer plass på enheten", "Geen ruimte meer over op apparaat", "Brak miejsca na urządzeniu",
        "Sem espaço livre no dispositivo", "Não há espaço disponível no dispositivo",
        "На устройстве не осталось свободного места", "Enheten är full", "Aygıt üzerinde boş yer yok",
        "Недостатньо місця на пристрої", "设备上没有空间", "裝置上已無多餘空間",
    ),
    "Disk quota exceeded": (
        "S’ha excedit la quota de disc", "Překročena disková kvóta", "Diskkvoten overskredet",
        "Der zugewiesene Plattenplatz (Quota) ist überschritten", "Se ha excedido la cuota de disco",
        "Levykiintiö ylittynyt", "Débordement du quota d'espace disque", "Lemezkvóta túllépve",
        "Quota disco superata", "ディスク使用量制限を超過しました", "디스크 할당량이 초과됨", "Schijfquotum is overschreden",
        "Przekroczony limit dyskowy", "Quota do disco excedida", "Cota da disco excedida",
        "Превышена дисковая квота", "Diskkvot överskriden", "Disk kotası aşıldı", "Перевищено квоту диска",
        "超出磁盘限额", "磁碟配額已滿",
    ),
    "Input/output error": (
        "Error d’Entrada/Sortida", "Chyba vstupu/výstupu", "Inddata/uddata-fejl", "Eingabe-/Ausgabefehler",
        "Error de entrada/salida", "I/O-virhe", "Erreur d'entrée/sortie", "Kimeneti/bemeneti hiba",
        "Errore di input/output", "入力/出力エラーです", "입력/출력 오류", "Inn/ut-feil", "Invoer-/uitvoerfout",
        "Błąd wejścia/wyjścia", "Erro de entrada/saída", "Ошибка ввода/вывода", "In/ut-fel",
        "Girdi/Çıktı hatası", "Помилка введення-виведення", "输入/输出错误", "輸入/輸出錯誤",
    ),
    "Stale file handle": (
        "L’indicador del fitxer és obsolet", "Zastaralý ukazatel na soubor",
        "Veraltete Dateizugriffsnummer (file handle)", "`handle' de fichero en desuso",
        "Vanhentunut tiedostokahva", "Panne d'accès au fichier", "끊어진 파일 핸들", "Achterhaald bestandshandvat",
        "Nieaktualny uchwyt pliku", "Gestão de ficheiro obsoleto", "Manipulador de arquivo corrompido",
        "Устаревший дескриптор файла", "Förlegat filhandtag", "Eski dosya kolu",
        "Застарілий дескриптор файла", "过旧的文件控柄", "過舊的檔案控柄",
    ),
    "Read-only file system": (
        "El sistema de fitxers és només de lectura", "Systém souborů je pouze pro čtení",
        "Filsystem med kun læseadgang", "Das Dateisystem ist nur lesbar",
        "Sistema de ficheros de sólo lectura", "Kirjoitussuojattu tiedostojärjestelmä",
        "Système de fichiers accessible en lecture seulement", "Írásvédett fájlrendszer",
        "File system in sola lettura", "読み込み専用ファイルシステムです", "읽기전용 파일 시스템", "Filsystem med kun lesetilgang",
        "Bestandssysteem is alleen-lezen", "System plików wyłącznie do odczytu",
        "Sistema de ficheiros só de leitura", "Sistema de arquivos somente para leitura",
        "Файловая система доступна только для чтения", "Skrivskyddat filsystem",
        "Salt-okunur dosya sistemi", "Файлова система тільки для зчитування", "只读文件系统", "唯讀的檔案系統",
    ),
    "Cannot allocate memory": (
        "No s’ha pogut reservar memòria", "Nelze alokovat paměť", "Kan ikke tildele hukommelse",
        "Nicht genügend Hauptspeicher verfügbar", "No se pudo asignar memoria",
        "Muistin varaaminen ei onnistu", "Ne peut allouer de la mémoire", "Nem foglalható memória",
        "Impossibile allocare memoria", "メモリを確保できません", "메모리를 할당할 수 없습니다", "Kan ikke tildele minne",
        "Onvoldoende geheugen beschikbaar", "Nie można przydzielić pamięci", "Impossível alocar memória",
        "Não foi possível alocar memória", "Невозможно выделить память", "Kan inte allokera minne",
        "Bellek ayrılamadı", "Не вдалося розподілити пам’ять", "无法分配内存", "無法配置記憶體",
    ),
    "Too many open files": (
        "El procés té massa fitxers oberts", "Překročen limit počtu otevřených souborů",
        "For mange åbne filer", "Zu viele offene Dateien", "Demasiados ficheros abiertos",
        "Liian monta avointa tiedostoa", "Trop de fichiers ouverts", "Túl sok nyitott fájl",
        "Troppi file aperti", "ファイルを開きすぎです", "열린 파일이 너무 많음", "For mange åpne filer",
        "Te veel open bestanden", "Za dużo otwartych plików", "Demasiados ficheiros abertos",
        "Muitos arquivos abertos", "Слишком много открытых файлов", "För många öppna filer",
        "Çok fazla açık dosya var", "Забагато відкритих файлів", "打开的文件过多", "開啟太多檔案",
    ),
    "Transport endpoint is not connected": (
        "L’extrem de transport no és connectat", "Koncový komunikační bod není připojen",
        "Transport-endepunkt er ikke forbundet", "Der Socket ist nicht verbunden",
        "El otro extremo de la conexión no está conectado", "Siirron vastapää ei ole yhdistetty",
        "Noeud final de transport n'est pas connecté", "A szállítási végpont nincs csatlakoztatva",
        "Il socket di destinazione non è connesso", "通信端点が接続されていません", "전송 종료지점이 연결되어 있지 않습니다",
        "Transport-endepunktene er ikke sammenkoblet", "Overdrachtseindpunt is niet verbonden",
        "Drugi koniec nie jest połączony", "Ponto final do transporte não está ligado",
        "Ponto final de transporte não está conectado", "Конечная точка передачи не подсоединена",
        "Transportslutpunkten är inte förbunden", "Diğer uç aktarım için bağlı değil",
        "Кінцеву точку передавання не з’єднано", "传输端点尚未连接", "傳輸的兩端尚未連線",
    ),
    "No such file or directory": (
        "El fitxer o directori no existeix", "Adresář nebo soubor neexistuje", "Ingen sådan fil eller filkatalog",
        "Datei oder Verzeichnis nicht gefunden", "No existe el fichero o el directorio", "No existe el archivo o el directorio",
        "Tiedostoa tai hakemistoa ei ole", "Aucun fichier ou dossier de ce type", "Aucun fichier ou répertoire de ce type",
        "Nincs ilyen fájl vagy könyvtár", "File o directory non esistente", "そのようなファイルやディレクトリはありません",
        "그런 파일이나 디렉터리가 없습니다", "Ingen slik fil eller filkatalog", "Bestand of map bestaat niet",
        "Nie ma takiego pliku ani katalogu", "Ficheiro ou directoria inexistente", "Ficheiro ou pasta inexistente", "Arquivo ou diretório inexistente",
        "Arquivo ou diretório não encontrado", "Нет такого файла или каталога", "Filen eller katalogen finns inte",
        "Böyle bir dosya ya da dizin yok", "Немає такого файла або каталогу", "没有那个文件或目录", "沒有此一檔案或目錄",
    ),
    "Permission denied": (
        "S’ha denegat el permís", "Operace zamítnuta", "Engedély megtagadva", "Adgang nægtet", "Keine Berechtigung", "Permiso denegado", "Lupa evätty",
        "Permission non accordée", "Hozzáférés megtagadva", "Permesso negato", "許可がありません", "허가 거부", "Ikke tilgang",
        "Toegang geweigerd", "Brak dostępu", "Permissão recusada", "Permissão negada", "Отказано в доступе", "Åtkomst nekas",
        "Erişim engellendi", "Відмовлено у доступі", "权限不够", "拒絕不符權限的操作",
    ),
}  # fmt: skip
"""Texts of `strerror`."""
_ERRORS |= message_catalogues.ERRORS
_SIGNALS = {
    "Killed": (
        "Matat", "Zabit (SIGKILL)", "Dræbt", "Getötet", "Terminado (killed)", "Tapettu", "Processus arrêté",
        "Kilőve", "Ucciso", "強制終了", "죽었음", "Drept", "Geëlimineerd", "Unicestwiony", "Morto", "Убито",
        "Dödad", "Süreç durduruldu", "Вбито", "已杀死", "強制結束",
    ),
    "Segmentation fault": (
        "Violació de segment", "Neoprávněný přístup do paměti (SIGSEGV)", "Segmentfejl",
        "Speicherzugriffsfehler", "Violación de segmento", "Muistialueen ylitys", "Erreur de segmentation",
        "Szegmentálási hiba", "Errore di segmentazione", "세그멘테이션 오류", "Minnesegmentsfeil",
        "Segmentatiefout", "Naruszenie ochrony pamięci", "Falta de segmentação", "Falha de segmentação",
        "Ошибка сегментирования", "セグメンテーション違反です", "セグメンテーション違反", "Segmenteringsfel", "Parçalama arızası", "Помилка адресування", "段错误",
        "程式記憶體區段錯誤",
    ),
    "Bus error": (
        "Error de bus", "Chyba na sběrnici (neplatná adresa) (SIGBUS)", "Busfejl", "Bus-Zugriffsfehler",
        "Error del bus", "Väylävirhe", "Erreur du bus", "Busz hiba", "Errore di bus", "バスエラー", "버스 오류",
        "Bussfeil", "Busfout", "Błąd szyny", "Erro de bus", "Erro no barramento", "Ошибка шины", "Bussfel",
        "Veri yolu hatası", "Помилка каналу обміну даними", "总线错误", "匯流排錯誤",
    ),
    "Aborted": (
        "Avortat", "Neúspěšně ukončen (SIGABRT)", "Afbrudt (SIGABRT)", "Abgebrochen", "Abortado",
        "Keskeytetty", "Abandon", "Félbeszakítva", "Annullato", "中止", "중지됨", "Avbrutt (SIGABRT)",
        "Afgebroken", "Przerwane", "Аварийный останов", "Avbruten (SIGABRT)", "İptal edildi", "Перервано",
        "已放弃",
    ),
    "Illegal instruction": (
        "La instrucció no és permesa", "Nedovolená instrukce (SIGILL)", "Ulovlig instruktion (SIGILL)",
        "Ungültiger Maschinenbefehl", "Instrucción ilegal", "Virheellinen käsky", "Instruction non permise",
        "Érvénytelen utasítás", "Istruzione non consentita", "명령어가 잘못됨", "Ulovlig instruksjon (SIGILL)",
        "Ongeldige instructie", "Błędna instrukcja", "Instrução ilegal", "Недопустимая инструкция",
        "Otillåten instruktion", "Yönerge kuraldışı", "Помилкова інструкція", "非法指令", "無效指令",
    ),
    "Floating point exception": (
        "Excepció de coma flotant", "Výjimka v pohyblivé řádové čárce (SIGFPE)",
        "Undtagelsestilfælde ved flydende taloperation", "Gleitkomma-Ausnahme",
        "Excepción de coma flotante", "Liukulukupoikkeus", "Exception en point flottant",
        "Lebegőpontos kivétel", "Eccezione in virgola mobile", "浮動小数点例外", "부동 소수점 예외",
        "Unntakstilfelle ved flyttallsoperasjon", "Drijvendekomma-berekeningsfout",
        "Błąd w obliczeniach zmiennoprzecinkowych", "Excepção de vírgula flutuante",
        "Exceção de ponto flutuante", "Исключение в операции с плавающей точкой", "Flyttalsfel",
        "Gerçel sayı istisnası", "Помилка обчислень з рухомою комою", "浮点数例外", "浮點數例外",
    ),
    "Terminated": (
        "Terminat", "Ukončen (SIGTERM)", "Termineret", "Beendet", "Terminado", "Päätetty", "Complété",
        "Befejeződött", "Terminato", "종료됨", "Terminert", "Beëindigd", "Zakończony", "Завершено", "Avslutad",
        "Sonlandırıldı", "Припинено", "已终止", "終止",
    ),
    "File size limit exceeded": (
        "S’ha excedit la mida màxima de fitxer", "Překročen limit délky souboru",
        "Grænse for filstørrelse overskredet", "Die maximale Dateigröße ist überschritten",
        "Superado el límite de tamaño de fichero", "Tiedoston kokoraja ylitetty",
        "Débordement de la taille permise pour un fichier", "Fájlméretkorlát túllépve",
        "Superato il limite di dimensione file", "ファイルサイズ制限を超過しました", "파일 크기 제한을 초과함",
        "Grense for filstørrelse overskredet", "Limiet op bestandsgrootte is overschreden",
        "Przekroczony limit wielkości pliku", "Excedido limite de tamanho do ficheiro",
        "Excedido tamanho limite de arquivo", "Превышен лимит размера файла",
        "Begränsning av filstorlek överskriden", "Dosya uzunluğu sınırı aşıldı",
        "Перевищено обмеження на розмір файла", "文件大小超出限制", "到達檔案大小上限",
    ),
    "CPU time limit exceeded": (
        "S’ha excedit el temps límit de CPU", "Překročen časový limit pro procesor (SIGXCPU)",
        "Begrænsning af CPU-tid overskredet", "Rechenzeitbegrenzung überschritten",
        "Rebasado el límite de tiempo de CPU", "Suoritinaikaraja ylittynyt", "Temps UCT limite expiré",
        "CPU-időkorlát túllépve", "Superato il limite di tempo CPU", "CPU時間制限を超過しました", "CPU 시간 제한 초과함",
        "Begrensning av CPU-tid overskredet", "Limiet op processortijd is overschreden",
        "Przekroczony limit czasu procesora", "Excedido limite de tempo da CPU", "Tempo de CPU excedido",
        "Превышен лимит процессорного времени", "Begränsning av CPU-tid överskriden",
        "CPU zaman sınırı aşıldı", "Перевищено обмеження часу використання процесора", "超出 CPU 时限",
        "到達 CPU 時間上限",
    ),
}  # fmt: skip
"""Texts of `strsignal` for a dead child."""
_DUMPED = (
    "s'ha bolcat la memòria", "core dumped [obraz paměti uložen]", "smed kerne",
    "Speicherabzug geschrieben", "`core' generado", "luotiin core-tiedosto", "core készült",
    "core dump creato", "コアダンプ", "코어 덤프됨", "kjerne lagret i fil", "geheugendump gemaakt", "zrzut pamięci",
    "núcleo despejado", "imagem do núcleo gravada", "образ памяти сброшен на диск", "minnesutskrift skapad",
    "çekirdek döküldü", "збережено знімок оперативної пам’яті", "核心已转储", "核心已傾印",
)  # fmt: skip
"""bash's words behind it for a core that was dumped."""
_NOT_FOUND = (
    "no s'ha trobat l'ordre", "příkaz nenalezen", "kommando ikke fundet", "Kommando nicht gefunden",
    "orden no encontrada", "komentoa ei löydy", "commande introuvable", "parancs nem található",
    "comando non trovato", "コマンドが見つかりません", "명령어를 찾을 수 없음", "fant ikke kommando", "opdracht niet gevonden",
    "nie znaleziono polecenia", "comando não encontrado", "команда не найдена", "kommandot finns inte",
    "komut yok", "команду не знайдено", "未找到命令", "指令找不到",
)  # fmt: skip
"""bash's messages for a missing command."""
_R_CALLS = (
    "Fejl i ", "Fehler in ", "Error en ", "Erreur dans ", "Errore in ", "以下にエラー ", "다음에 오류가 있습니다", "Klaida, esanti ",
    "Feil i ", "Błąd w poleceniu ", "Błąd w ", "Erro em ", "Ошибка в ", "Hata oluştu: ", "错误于", "錯誤在", "錯誤發生在 ",
)  # fmt: skip
"""R's `Error in ` in front of a call."""
_R_BEHIND = ("でエラー", "에서 다음과 같은 에러가 발생했습니다")
"""The same behind the call."""
_R_ERRORS = (
    "Fejl: ", "Fehler: ", "Erreur : ", "Errore: ", "エラー: ", "에러: ", "Klaida: ", "Feil: ", "BŁĄD: ", "Erro: ", "Ошибка: ", "Hata: ",
    "错误: ", "錯誤: ",
)  # fmt: skip
"""R's `Error: `; other programs say it in the same words."""
_R_HALTED = (
    "Kørsel stoppet", "Ausführung angehalten", "Ejecución interrumpida", "Exécution arrêtée", "Esecuzione interrotta",
    "実行が停止されました", "실행이 정지되었습니다", "Vykdymas sustabdytas", "Stoppa køyring", "Wykonywanie wstrzymane",
    "Execução interrompida", "Выполнение остановлено", "Çalıştırma durduruldu", "停止执行", "停止執行",
)  # fmt: skip
"""The last line of an R script that failed."""
_ENGLISH = {
    word: english for table in (_ERRORS, _SIGNALS) for english, words in table.items() for word in words
}
_OF_R = (*_R_CALLS, *_R_BEHIND, *_R_ERRORS, *_R_HALTED)
_OF_SHELL = [word for words in message_catalogues.SHELL.values() for word in words]
_NAMED = "%s"
TRIGGERS = (
    *(*_ENGLISH, *_NOT_FOUND, *_OF_R),
    *(max(word.split(_NAMED), key=len).strip(" :：.\"'`«»„“”「」") for word in _OF_SHELL),
)
"""A line without any of these is not translated."""
_ANY = re.compile(literals.any_of(TRIGGERS))


def _either(words: tuple[str, ...] | list[str]) -> str:
    return "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))


_LINE = re.compile(
    r"^(?P<shell>\S{1,200}?)(?:\s?[:：,] ?| (?=línia ))(?:(?:第 ?|Zeile |ligne |línea |línia |linea |riga |linha |regel |rad |linje |linia |wiersz |строка |рядок |řádek |satır |rivi |行 ?|줄 ?)(?P<line>\d{1,6})(?: ?[行列])?|(?P<before>\d{1,6})(?:\. (?:sor|satır)| 行))\s?[:：] ?"
)
"""A shell's name for a line of a script."""
_ERROR = re.compile(
    rf"(?P<before>(?:[:：] ?|\] ?|\())(?P<said>{_either([w for ws in _ERRORS.values() for w in ws])})"
)
_CHILD = re.compile(
    rf"^(?P<shell>\S{{1,200}}?)\s?[:：] .{{0,12}}?(?P<line>\d{{1,6}}).{{0,8}}?[:：] {{0,4}}(?P<pid>\d{{1,10}}) {{1,4}}(?P<said>{_either([w for ws in _SIGNALS.values() for w in ws])})(?!\w)"
)
_COMMAND = re.compile(
    rf"^(?P<shell>\S{{1,200}}?)\s?[:：] ?.{{0,12}}?(?P<line>\d{{1,6}}).{{0,8}}?[:：] ?(?P<name>\S{{1,200}}?)\s?[:：] ?(?:{_either(_NOT_FOUND)})\.?$"
)
_PLAIN = re.compile(
    rf"^(?P<shell>-?(?:ba|z|da|k|c|tc)?sh)[:：] ?(?P<name>\S{{1,200}}?)\s?[:：] ?(?:{_either(_NOT_FOUND)})\.?$"
)
_ALONE = [
    w
    for english in ("Segmentation fault", "Bus error", "Illegal instruction", "Floating point exception")
    for w in _SIGNALS[english]
]
_CORE = rf"\s{{0,2}}[(（](?:core dumped|{_either(_DUMPED)})[)）] ?"
_BARE = re.compile(
    rf"^\s{{0,8}}(?:(?P<said>{_either(_ALONE)})(?:{_CORE})?|(?P<dumped>{_either(_SIGNALS['Aborted'])}){_CORE})$"
)
"""The same alone on its line. `Killed`, `Terminated` and `Aborted` are everyday words of programs, `Aborted` not before a core."""
_LOADER = re.compile(
    r"^(?P<program>\S{1,300}?)\s?: [^:\n]{5,120}: (?P<library>[^\s:]{1,200}\.so(?:\.[\w.]{1,40})?): [^:\n]{5,160}: No such file or directory$"
)
"""The loader's message about a library that it does not find; its words are translated as well."""
_SHELL_LINE = re.compile(r"^\S{1,200}: line \d{1,6}: ")


def _form(word: str) -> str:
    """A regular expression for one of bash's messages."""
    pieces = [
        re.sub(r"(?:\\ )?[:：](?:\\ )?", r"\\s?[:：]\\s?", re.escape(piece)) for piece in word.split(_NAMED)
    ]
    return "(.{1,200}?)".join(pieces)


_SHELL = [
    (re.compile(rf"(?:{'|'.join(map(_form, words))})(?:\.?$|(?=[:：] ))"), english)
    for english, words in message_catalogues.SHELL.items()
]
_R_CALL = re.compile(
    rf"^\s{{0,2}}(?:(?:{_either(_R_CALLS)})(?P<call>[\w.:$`'\"(\[{{].{{0,300}}?)|(?P<before>\S.{{0,300}}?)\s?(?:{_either(_R_BEHIND)}))\s?[:：]\s?"
)
_R_ERROR = re.compile(rf"^\s?(?:{_either(_R_ERRORS)})")


def _of_r(text: str) -> str:
    """The line with R's own words in English."""
    if text.strip() in _R_HALTED:
        return "Execution halted"
    if call := _R_CALL.match(text):
        of = (call["call"] or call["before"]).strip("'")
        return f"Error in {of} : {text[call.end() :]}"
    return _R_ERROR.sub("Error: ", text)


def _of_shell(words: str) -> str:
    """What bash says of a line of its script, in English."""
    for form, template in _SHELL:
        if found := form.match(words):
            english = template % tuple(name for name in found.groups() if name is not None)
            return english + words[found.end() :]
    return words


def english(text: str) -> str:
    """The line with messages of the C library, the shell or R in English; unchanged without such a message in another language."""
    if not _ANY.search(text):
        return text
    if (translated := _of_r(text)) != text:
        return translated
    if child := _CHILD.match(text):
        behind = re.sub(f"^{_CORE}", " (core dumped) ", text[child.end() :])
        return f"{child['shell']}: line {child['line']}: {child['pid']} {_ENGLISH[child['said']]}{behind}"
    if text.rstrip().removesuffix(".").endswith(_NOT_FOUND):
        if command := _COMMAND.match(text.rstrip()):
            return f"{command['shell']}: line {command['line']}: {command['name']}: command not found"
        if plain := _PLAIN.match(text.rstrip()):
            return f"{plain['shell']}: {plain['name']}: command not found"
    if bare := _BARE.match(text.rstrip()):
        return _ENGLISH[bare["said"] or bare["dumped"]]
    text = _LINE.sub(lambda at: f"{at['shell']}: line {at['line'] or at['before']}: ", text)
    if at := _SHELL_LINE.match(text):
        text = text[: at.end()] + _of_shell(text[at.end() :])
    text = _ERROR.sub(lambda found: found["before"] + _ENGLISH[found["said"]], text)
    if loader := _LOADER.match(text):
        return f"{loader['program']}: error while loading shared libraries: {loader['library']}: cannot open shared object file: No such file or directory"
    return text


def translation(message: str) -> dict[str, str]:
    """The field with the English form of a message in another language; none of an English one."""
    words = english(message)
    return {} if words == message else {"english": sanitize.clean(words, 1024)}
